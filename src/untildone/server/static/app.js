// Keys, dialogs, steering and the theme. What pages show comes from the server.
"use strict";

const byId = (id) => document.getElementById(id);

// --- theme ---------------------------------------------------------------------------------------------------

document.querySelector("[data-theme-switch]").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("untildone-theme", root.dataset.theme); } catch { /* Only for this page, then. */ }
  document.dispatchEvent(new Event("untildone:theme"));
});

// --- dialogs and steering --------------------------------------------------------------------------------------

async function show(button) {
  const dialog = byId(button.dataset.open);
  sayIn(dialog, "");
  dialog.showModal();
  if (button.dataset.first) await fill(dialog, byId(button.dataset.into), button.dataset.first);
}

// What a form begins with is asked for as it opens: it may have changed since the page was made.
async function fill(dialog, place, address) {
  place.replaceChildren();
  try {
    const answer = await fetch(address, { headers: { "X-Requested-With": "fetch" } });
    if (!answer.ok) return sayIn(dialog, "The server refused to tell what holds now: close this and try again.");
    const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
    place.replaceChildren(...[...parsed.body.children].map((one) => document.adoptNode(one)));
    showMoments(place);
    place.querySelector("input")?.focus();
  } catch { sayIn(dialog, "The server cannot be reached: close this and try again."); }
}

// Behind an open dialog nothing can be read: what is said about its form is said in it.
function sayIn(dialog, text) {
  const answer = dialog?.querySelector(".answer") || (dialog ? null : byId("answer"));
  answer?.replaceChildren(...(text ? [Object.assign(document.createElement("span"), { className: "said-bad", textContent: text })] : []));
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.dataset.open) show(button);
  if (button.hasAttribute("data-close")) button.closest("dialog").close();
  if (button.dataset.answer !== undefined) {
    const quoted = button.dataset.answer.split("\n").map((line) => `> ${line}`).join("\n");
    const text = byId("message-text");
    text.value = `${quoted}\n\n`;
    sayIn(byId("message-dialog"), "");
    byId("message-dialog").showModal();
    text.focus();
    text.setSelectionRange(text.value.length, text.value.length);
  }
});

// What lets this browser steer (login.js keeps it). No cookie: those go to every port of this host.
document.addEventListener("htmx:configRequest", (event) => {
  try { event.detail.headers["X-Untildone-Proof"] = localStorage.getItem("untildone-proof") || ""; } catch { /* The server says what is missing. */ }
});

const isRefused = (xhr) => xhr.getResponseHeader("X-Order") === "refused";

document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.target.closest?.("#steering")) sayIn(event.target.closest("dialog"), "");
});
document.addEventListener("htmx:beforeSwap", (event) => {
  const dialog = event.detail.requestConfig.elt.closest("#steering dialog");
  if (dialog && isRefused(event.detail.xhr)) event.detail.target = dialog.querySelector(".answer");
});
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.target.closest?.("#steering")) document.dispatchEvent(new Event("untildone:ask"));
  const form = event.target.closest?.("form[data-closes]");
  if (!form || !event.detail.successful || isRefused(event.detail.xhr)) return;
  form.closest("dialog").close();
  if (form.closest("#message-dialog")) form.reset();
});

// Orders that are refused before they are looked at (login, rate): the line of the answer is told all the same.
document.addEventListener("htmx:responseError", (event) => {
  if (!event.target.closest?.("#steering")) return;
  let said = "The server refused this.";
  try { said = JSON.parse(event.detail.xhr.responseText).error || said; } catch { /* Not one of its lines. */ }
  sayIn(event.target.closest("dialog"), said);
});
document.addEventListener("htmx:sendError", (event) => {
  if (!event.target.closest?.("#steering")) return;
  sayIn(event.target.closest("dialog"), "The server cannot be reached: nothing was asked. Try again.");
});

function showUsable() {
  const head = byId("part-head");
  if (!head) return;
  for (const one of document.querySelectorAll("[data-when]")) {
    one.hidden = !one.dataset.when.split(" ").some((state) => head.dataset.states.split(" ").includes(state));
  }
}

// --- keys ----------------------------------------------------------------------------------------------------

function move(step) {
  const items = [...document.querySelectorAll("[data-list] .item")];
  if (!items.length) return;
  const at = items.indexOf(document.activeElement);
  const next = items[at < 0 ? (step > 0 ? 0 : items.length - 1) : Math.min(items.length - 1, Math.max(0, at + step))];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

const keys = {
  j: () => move(1),
  k: () => move(-1),
  g: () => location.assign("/"),
  "/": () => byId("search").focus(),
  "?": () => byId("help").showModal(),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && event.target.id === "search") event.target.blur();
  if (event.target.closest("input, textarea, select, [contenteditable]") || document.querySelector("dialog[open]")) return;
  const button = [...document.querySelectorAll(`[data-key]`)].find((one) => one.dataset.key === event.key && !one.hidden && !one.disabled);
  const act = keys[event.key] || (button && (() => button.click()));
  if (!act) return;
  event.preventDefault();
  act();
});

tellTimes(document);
showUsable();
document.addEventListener("untildone:parts", () => { tellTimes(document); showUsable(); });

// --- what works only with scripts ----------------------------------------------------------------------------

// Pressed before htmx has taken it over, such a form would be sent by the browser itself, without the proof.
htmx.onLoad(() => {
  for (const button of document.querySelectorAll("[data-when-ready]")) button.disabled = false;
});
