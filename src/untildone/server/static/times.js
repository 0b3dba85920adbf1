// Times as this browser's clock tells them, all in its own zone: pages carry moments, not words about them.
"use strict";

const clockFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const dayFormat = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const shortFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

function lasting(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

const clock = (at) => (at.toDateString() === new Date().toDateString() ? shortFormat : dayFormat).format(at);

function told(time) {
  const at = new Date(time.dateTime), away = (Date.now() - at.getTime()) / 1000;
  switch (time.dataset.as) {
    case "time": return clockFormat.format(at);
    case "ago": return away < 5 ? "just now" : `${lasting(away)} ago`;
    case "until": return away < 0 ? `in ${lasting(-away)} (${clock(at)})` : "now";
    default: return clock(at);
  }
}

function tellTimes(root) {
  for (const time of root.querySelectorAll("time[data-as]")) {
    const text = told(time);
    if (time.textContent !== text) {
      time.textContent = text;
      time.title = new Date(time.dateTime).toLocaleString(undefined, { timeZoneName: "short" });
    }
  }
}

setInterval(() => {
  for (const time of document.querySelectorAll('time[data-as="ago"], time[data-as="until"]')) {
    const text = told(time);
    if (time.textContent !== text) time.textContent = text;
  }
}, 1000);
document.addEventListener("htmx:afterSwap", (event) => tellTimes(event.target.parentElement || document));

// --- moments that are typed: shown in this zone, sent as UTC to the minute ------------------------------------

const pad = (number) => String(number).padStart(2, "0");

function showMoments(root) {
  for (const field of root.querySelectorAll("[data-moment]")) {
    const at = new Date(field.dataset.moment);
    if (Number.isNaN(at.getTime())) continue;
    field.value = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}T${pad(at.getHours())}:${pad(at.getMinutes())}`;
  }
}

document.addEventListener("htmx:configRequest", (event) => {
  for (const field of event.target.querySelectorAll?.("[data-moment]") || []) {
    const at = new Date(field.value);
    if (field.value && !Number.isNaN(at.getTime())) event.detail.parameters[field.name] = `${at.toISOString().slice(0, 16)}Z`;
  }
});
