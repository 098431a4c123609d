// Keeps the page fresh: events say that there is news, the page itself is asked for again, and only
// what differs is changed. Whatever comes is parsed as a document without scripts, never as a string
// put into this one: names and messages are a stranger's.
"use strict";
(() => {
  const { root, every } = document.body.dataset;
  const EVERY_MS = 1000 * Number(every), SILENT_MS = 9000, POLL_MS = 5000, PATIENCE_MS = 20000;
  const live = document.getElementById("live"), said = document.getElementById("said");
  const state = document.getElementById("state"), stale = document.getElementById("stale");
  const sheet = () => document.querySelector("link[rel=stylesheet]").getAttribute("href");

  let stream = null, heardAt = performance.now(), askedAt = performance.now(), seen = "";
  let asking = false, wanted = false, timer = 0;
  // Since when this page is asked for in vain, whatever else the server says meanwhile.
  let vainSince = Infinity;

  function heard() {
    heardAt = performance.now();
    if (vainSince < Infinity) return;
    if (state.dataset.is === "stale") stale.hidden = true;
    state.dataset.is = "live";
  }

  const quiet = () => performance.now() - Math.min(heardAt, vainSince);

  function silent(why) {
    vainSince = Math.min(vainSince, askedAt);
    if (quiet() < SILENT_MS) return;
    state.dataset.is = "stale";
    const at = live.dataset.at;
    const told = `${why}. ${at ? `What you see is from ${at} UTC` : "Nothing is known yet"}; trying again.`;
    if (stale.textContent !== told) stale.textContent = told;
    stale.hidden = false;
  }

  // The attributes and children of one element become those of the other; what stays the same is not
  // touched, so focus, selection and scrolling stay where they are.
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
    // Rows move: who was about to open one gang must not open another.
    if (href !== null && document.activeElement.getAttribute("href") !== href) {
      const same = [...live.querySelectorAll("a")].find((link) => link.getAttribute("href") === href);
      if (same) same.focus({ preventScroll: true });
      else document.activeElement.blur();
    }
  }

  function refresh() {
    clearTimeout(timer);
    timer = 0;
    if (asking) { wanted = true; return; }
    asking = true;
    wanted = false;
    askedAt = performance.now();
    const address = location.href, call = new XMLHttpRequest();
    call.open("GET", address);
    call.responseType = "document";
    call.timeout = PATIENCE_MS;
    call.onload = () => {
      const fresh = call.response;
      if (!fresh || !fresh.getElementById("live")) return silent(`The extender answers ${call.status}`);
      // Another version serves us: its pages want its own script and style.
      if (fresh.querySelector("link[rel=stylesheet]").getAttribute("href") !== sheet()) return location.reload();
      vainSince = Infinity;
      heard();
      if (address === location.href) show(fresh);
      // Another address was chosen meanwhile, or the server is still at it.
      if (address !== location.href || live.querySelector("[data-unfinished]")) wanted = true;
    };
    call.onerror = call.ontimeout = () => silent("The extender does not answer");
    call.onloadend = () => { asking = false; if (wanted) soon(); };
    call.send();
  }

  function soon() {
    if (timer || document.hidden) return;
    timer = setTimeout(refresh, Math.max(0, askedAt + EVERY_MS - performance.now()));
  }

  function listen() {
    if (stream && stream.readyState !== EventSource.CLOSED) return;
    stream = new EventSource(`${root}events`);
    stream.onmessage = (event) => {
      heard();
      if (event.data !== seen) soon();
      seen = event.data;
    };
  }

  function hush() {
    if (stream) stream.close();
    stream = null;
  }

  // A browser has six connections for one address: who is not looked at gives its own back.
  function turn() {
    if (document.hidden) return hush();
    heardAt = performance.now();
    vainSince = Infinity;
    listen();
    soon();
  }

  setInterval(() => {
    if (document.hidden) return;
    if (quiet() > SILENT_MS && performance.now() - askedAt > POLL_MS) { listen(); refresh(); }
  }, 1000);

  document.addEventListener("visibilitychange", turn);
  addEventListener("pagehide", hush);
  addEventListener("pageshow", turn);

  // Filters live in the address.
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
