// What is new comes by itself: one stream for the page, parts fetched anew when they changed, lines appended.
"use strict";

(() => {
  const page = document.querySelector("[data-live]");
  if (!page) return;

  const MOST_LINES = 1000, SOONEST = 1000, LONGEST = 15000;
  const connection = document.querySelector(".connection");
  const received = new Map();

  // --- parts: replaced only when they look different, lists merged by the ids of their items -------------------

  function put(html) {
    const parsed = new DOMParser().parseFromString(html, "text/html");
    for (const list of parsed.querySelectorAll("[data-keyed]")) merge(list);
    for (const part of parsed.querySelectorAll("[data-part]")) replace(part);
    document.dispatchEvent(new Event("untildone:parts"));
  }

  function replace(part) {
    const there = document.getElementById(part.id), html = part.outerHTML;
    if (!there || received.get(part.id) === html) return;
    received.set(part.id, html);
    const opened = [...there.querySelectorAll("details[open]")].map((one) => one.id);
    const focused = there.contains(document.activeElement) ? document.activeElement.id : "";
    const adopted = document.adoptNode(part);
    there.replaceWith(adopted);
    for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
    if (focused) document.getElementById(focused)?.focus();
    htmx.process(adopted);
  }

  function merge(list) {
    const there = document.getElementById(list.id);
    if (!there) return;
    if (there.dataset.new === "whole" && ![...list.children].some((item) => document.getElementById(item.id))) {
      // Nothing of it is shown: so much happened since that there would be a hole between the old and the new.
      there.replaceChildren(...[...list.children].map((item) => document.adoptNode(item)));
      htmx.process(there);
      return;
    }
    let first = there.firstElementChild;
    for (const item of [...list.children]) {
      if (item.id === "older-steps" || item.id === "no-steps") continue;
      const old = document.getElementById(item.id), html = item.outerHTML;
      if (item.hasAttribute("data-gone")) {
        received.delete(item.id);
        if (old === first) first = old.nextElementSibling;
        old?.remove();
        continue;
      }
      if (received.get(item.id) === html && old) continue;
      received.set(item.id, html);
      const focused = old?.contains(document.activeElement);
      const adopted = document.adoptNode(item);
      if (old) old.replaceWith(adopted);
      else if (there.dataset.new !== "no") there.insertBefore(adopted, first);
      if (old === first) first = adopted;
      if (focused) adopted.querySelector(".item")?.focus();
      htmx.process(adopted);
    }
    if (there.children.length > 1) document.getElementById("no-steps")?.remove();
  }

  // --- asking: at most one question at a time, and what comes meanwhile waits for the next ----------------------

  function asker(address) {
    let asking = false, wanted = false, last = 0, timer = 0;
    async function ask() {
      timer = 0;
      const url = address();
      if (!url) return;
      asking = true;
      wanted = false;
      last = Date.now();
      try {
        const answer = await fetch(url, { headers: { "X-Requested-With": "fetch" } });
        if (answer.ok) put(await answer.text());
      } catch { wanted = true; /* The stream notices, too, and asks when it is back. */ }
      asking = false;
      if (wanted) plan();
    }
    function plan() {
      wanted = true;
      if (!asking && !timer) timer = setTimeout(ask, Math.max(0, last + SOONEST - Date.now()));
    }
    return plan;
  }

  // --- the stream ----------------------------------------------------------------------------------------------

  function follow(address, handlers, onOpen) {
    let pause = 1000, source = null, timer = 0, noted = 0;
    function open() {
      source = new EventSource(address());
      source.onopen = () => {
        pause = 1000;
        clearTimeout(noted);
        connection.hidden = true;
        // The first time, too: what changed between the page and its stream was told to nobody.
        onOpen();
      };
      source.onerror = () => {
        // The browser's own retries end with the first answer that is no stream; ours do not.
        source.close();
        clearTimeout(noted);
        noted = setTimeout(() => { connection.hidden = false; }, 800);
        clearTimeout(timer);
        timer = setTimeout(open, pause * (0.75 + Math.random() / 2));
        pause = Math.min(LONGEST, pause * 2);
      };
      for (const [name, handle] of Object.entries(handlers)) source.addEventListener(name, handle);
    }
    open();
    addEventListener("pagehide", () => { clearTimeout(timer); source.close(); });
    addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
    addEventListener("online", () => { if (source.readyState === EventSource.CLOSED) { clearTimeout(timer); open(); } });
  }

  if (page.dataset.live === "fleet") fleet();
  else run();

  // --- all runs ------------------------------------------------------------------------------------------------

  function fleet() {
    const changed = new Set();
    const list = document.getElementById("runs");
    list.dataset.new = page.dataset.first === "yes" ? "yes" : "no";
    const ask = asker(() => {
      const ids = [...changed].slice(0, 50);
      for (const id of ids) changed.delete(id);
      if (changed.size) setTimeout(ask, SOONEST);
      return `/parts/rows?${[page.dataset.filter, ...ids.map((id) => `run=${encodeURIComponent(id)}`)].join("&")}`;
    });
    const note = (id) => {
      if (list.dataset.new === "yes" || document.getElementById(`run-${id}`)) changed.add(id);
      ask();
    };
    const all = () => { for (const row of list.querySelectorAll("[data-run]")) note(row.dataset.run); };
    follow(() => "/api/v1/stream", {
      changed: (event) => note(JSON.parse(event.data).run_id),
      lagged: all,
    }, all);
    // A run that fell silent sends no word of it.
    setInterval(() => { for (const row of list.querySelectorAll("[data-lively]")) note(row.dataset.run); }, 20000);
  }

  // --- one run -------------------------------------------------------------------------------------------------

  function run() {
    const id = page.dataset.run, log = document.getElementById("activity"), lines = document.getElementById("lines");
    const hold = document.querySelector("[data-hold]"), heldNote = document.querySelector("[data-held]");
    let last = Number(page.dataset.after), held = [], holding = false;

    const parts = asker(() => `/runs/${id}/parts/all`);
    const ask = () => { parts(); document.dispatchEvent(new Event("untildone:plots")); };
    const atEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    const toEnd = () => { log.scrollTop = log.scrollHeight; };

    function append(nodes) {
      const follows = atEnd();
      lines.querySelector(".quiet-line")?.remove();
      for (const node of nodes) {
        lines.append(node);
        htmx.process(node);
      }
      // Reading further up keeps its place: what is dropped from the top is only dropped while nobody looks there.
      if (follows) {
        while (lines.children.length > MOST_LINES) lines.firstElementChild.remove();
        toEnd();
      }
      while (lines.children.length > 3 * MOST_LINES) lines.firstElementChild.remove();
    }

    function take(event) {
      const parsed = new DOMParser().parseFromString(`<ol>${event.data}</ol>`, "text/html");
      const fresh = [...parsed.querySelectorAll("li[data-seq]")].filter((line) => Number(line.dataset.seq) > last);
      last = Math.max(last, Number(event.lastEventId) || 0);
      if (!fresh.length) return;
      const adopted = fresh.map((line) => document.adoptNode(line));
      adopted.forEach(tellTimes);
      if (!holding) return append(adopted);
      held = held.concat(adopted).slice(-MOST_LINES);
      heldNote.textContent = `${held.length} new`;
    }

    async function begin(event) {
      last = Number(event.lastEventId) || last;
      const answer = await fetch(`/runs/${id}/parts/activity`);
      if (!answer.ok) return;
      const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
      lines.replaceChildren(...[...parsed.querySelectorAll("#lines > li")].map((line) => document.adoptNode(line)));
      htmx.process(lines);
      for (const line of lines.querySelectorAll("li[data-seq]")) last = Math.max(last, Number(line.dataset.seq));
      document.dispatchEvent(new Event("untildone:parts"));
      toEnd();
    }

    hold.addEventListener("click", () => {
      holding = !holding;
      hold.setAttribute("aria-pressed", String(holding));
      hold.textContent = holding ? "Follow log" : "Freeze log";
      if (!holding) {
        append(held);
        held = [];
        heldNote.textContent = "";
        toEnd();
      }
    });

    toEnd();
    follow(() => `/runs/${id}/live?after=${last}`, { lines: take, changed: ask, reset: begin }, ask);
    document.addEventListener("untildone:ask", ask);
    setInterval(ask, 30000);
  }
})();
