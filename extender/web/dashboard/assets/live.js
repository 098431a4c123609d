// Keeps the page current: events announce a new cycle, the page is fetched again, and only what
// differs is changed. A response is parsed as a document without scripts, never inserted as a
// string, because names and messages are untrusted.
"use strict";
(() => {
  const { root, every } = document.body.dataset;
  const EVERY_MS = 1000 * Number(every), SILENT_MS = 9000, POLL_MS = 5000, PATIENCE_MS = 20000;
  const live = document.getElementById("live"), said = document.getElementById("said");
  const state = document.getElementById("state"), stale = document.getElementById("stale");
  const sheet = () => document.querySelector("link[rel=stylesheet]").getAttribute("href");

  let stream = null, receivedAt = performance.now(), requestedAt = performance.now(), seen = "";
  let requesting = false, wanted = false, timer = 0;
  // Since when requests for this page fail, even if events arrive in the meantime.
  let failingSince = Infinity;

  function received() {
    receivedAt = performance.now();
    if (failingSince < Infinity) return;
    if (state.dataset.is === "stale") stale.hidden = true;
    state.dataset.is = "live";
  }

  const silence = () => performance.now() - Math.min(receivedAt, failingSince);

  function failed(why) {
    failingSince = Math.min(failingSince, requestedAt);
    if (silence() < SILENT_MS) return;
    state.dataset.is = "stale";
    const at = live.dataset.at;
    const text = `${why}. ${at ? `What you see is from ${at} UTC` : "Nothing was loaded yet"}; trying again.`;
    if (stale.textContent !== text) stale.textContent = text;
    stale.hidden = false;
  }

  // Copies the attributes and children of one element to the other. Equal parts are not touched, so
  // focus, selection and scroll position stay.
  function morph(old, fresh) {
    for (const name of fresh.getAttributeNames()) {
      const value = fresh.getAttribute(name);
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    for (const name of old.getAttributeNames()) {
      if (!fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
    }
    const kids = [...fresh.childNodes];
    kids.forEach((kid, at) => {
      const mine = old.childNodes[at];
      if (!mine) old.append(document.importNode(kid, true));
      else if (mine.nodeName !== kid.nodeName) mine.replaceWith(document.importNode(kid, true));
      else if (kid.nodeType !== Node.ELEMENT_NODE) { if (mine.nodeValue !== kid.nodeValue) mine.nodeValue = kid.nodeValue; }
      else if (!mine.isEqualNode(kid)) morph(mine, kid);
    });
    while (old.childNodes.length > kids.length) old.lastChild.remove();
  }

  function show(fresh) {
    const focused = document.activeElement;
    const href = live.contains(focused) ? focused.getAttribute("href") : null;
    morph(live, fresh.getElementById("live"));
    said.textContent = fresh.getElementById("said").textContent;
    // Rows move: the focus must stay on the link of the same gang.
    if (href !== null && document.activeElement.getAttribute("href") !== href) {
      const same = [...live.querySelectorAll("a")].find((link) => link.getAttribute("href") === href);
      if (same) same.focus({ preventScroll: true });
      else document.activeElement.blur();
    }
  }

  function refresh() {
    clearTimeout(timer);
    timer = 0;
    if (requesting) { wanted = true; return; }
    requesting = true;
    wanted = false;
    requestedAt = performance.now();
    const address = location.href, call = new XMLHttpRequest();
    call.open("GET", address);
    call.responseType = "document";
    call.timeout = PATIENCE_MS;
    call.onload = () => {
      const fresh = call.response;
      if (!fresh || !fresh.getElementById("live")) return failed(`The extender answers ${call.status}`);
      // Another version of the extender answers: its pages need its own script and style.
      if (fresh.querySelector("link[rel=stylesheet]").getAttribute("href") !== sheet()) return location.reload();
      failingSince = Infinity;
      received();
      if (address === location.href) show(fresh);
      // The address changed during the request, or the server is still computing.
      if (address !== location.href || live.querySelector("[data-unfinished]")) wanted = true;
    };
    call.onerror = call.ontimeout = () => failed("The extender does not answer");
    call.onloadend = () => { requesting = false; if (wanted) soon(); };
    call.send();
  }

  function soon() {
    if (timer || document.hidden) return;
    timer = setTimeout(refresh, Math.max(0, requestedAt + EVERY_MS - performance.now()));
  }

  function listen() {
    if (stream && stream.readyState !== EventSource.CLOSED) return;
    stream = new EventSource(`${root}events`);
    stream.onmessage = (event) => {
      received();
      if (event.data !== seen) soon();
      seen = event.data;
    };
  }

  function unlisten() {
    if (stream) stream.close();
    stream = null;
  }

  // A browser has six connections per address: a hidden page closes its own.
  function visibilityChanged() {
    if (document.hidden) return unlisten();
    receivedAt = performance.now();
    failingSince = Infinity;
    listen();
    soon();
  }

  setInterval(() => {
    if (document.hidden) return;
    if (silence() > SILENT_MS && performance.now() - requestedAt > POLL_MS) { listen(); refresh(); }
  }, 1000);

  document.addEventListener("visibilitychange", visibilityChanged);
  addEventListener("pagehide", unlisten);
  addEventListener("pageshow", visibilityChanged);

  // Filters are stored in the address.
  const filters = document.getElementById("filters");
  if (filters) {
    filters.classList.add("lively");
    let typing = 0;
    const choose = () => {
      const chosen = new URLSearchParams([...new FormData(filters)].filter(([, value]) => value.trim()));
      history.replaceState(null, "", `?${chosen}`);
      refresh();
    };
    filters.addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(choose, 200); });
    filters.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(typing); choose(); });
  }

  function step(by) {
    const links = [...document.querySelectorAll(".rows tbody a.name")];
    const at = links.indexOf(document.activeElement);
    const next = links[at < 0 ? (by > 0 ? 0 : links.length - 1) : at + by];
    if (next) next.focus();
  }

  document.addEventListener("keydown", (event) => {
    const typed = event.target.closest("input, select, textarea");
    if (event.key === "Escape" && typed) return typed.blur();
    if (typed || event.ctrlKey || event.metaKey || event.altKey) return;
    const find = document.querySelector("input[type=search]");
    if (event.key === "/" && find) { event.preventDefault(); find.select(); find.focus(); }
    if (event.key === "j") step(1);
    if (event.key === "k") step(-1);
    if (event.key === "[" || event.key === "]") {
      const turned = live.querySelector(event.key === "[" ? "a[rel=prev]" : "a[rel=next]");
      if (turned) turned.click();
    }
  });
})();
