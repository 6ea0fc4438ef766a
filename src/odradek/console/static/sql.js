"use strict";
// The editor of SQL: Ctrl+Enter, completions, and rows that arrive. Without this script it is a form, and its result a page.
(() => {
  const form = document.getElementById("editor");
  const text = document.getElementById("text");
  const list = document.getElementById("completions");
  const spoken = document.getElementById("completion-state");
  let chosen = -1;
  let offers = [];
  let loading = null;
  let timer = 0;

  const isOpen = () => !list.hidden;
  function close() {
    if (loading) loading.abort();
    clearTimeout(timer);
    list.hidden = true;
    list.replaceChildren();
    offers = [];
    chosen = -1;
    spoken.textContent = "";
    text.removeAttribute("aria-activedescendant");
  }
  function choose(index) {
    chosen = (index + offers.length) % offers.length;
    [...list.children].forEach((option, number) => option.setAttribute("aria-selected", String(number === chosen)));
    const option = list.children[chosen];
    text.setAttribute("aria-activedescendant", option.id);
    option.scrollIntoView({ block: "nearest" });
  }
  function insert(index) {
    const offer = offers[index];
    const end = text.selectionStart;
    text.setRangeText(offer.text, end - offer.replaces, end, "end");
    close();
    text.focus();
  }
  function open(matches) {
    offers = matches;
    list.replaceChildren(...matches.map((match, index) => {
      const option = document.createElement("li");
      option.id = `completion-${index}`;
      option.setAttribute("role", "option");
      option.setAttribute("aria-selected", "false");
      const kind = document.createElement("span");
      kind.className = "quiet";
      kind.textContent = match.kind;
      option.append(match.text, " ", kind);
      option.addEventListener("mousedown", (event) => { event.preventDefault(); insert(index); });
      return option;
    }));
    list.hidden = false;
    spoken.textContent = `${matches.length} ${text.dataset.count}`;
    choose(0);
  }
  async function offer() {
    if (loading) loading.abort();
    const mine = (loading = new AbortController());
    const before = text.value.slice(0, text.selectionStart).slice(-500);
    try {
      const response = await fetch(`${text.dataset.complete}?${new URLSearchParams({ before })}`, { signal: mine.signal });
      const isJson = (response.headers.get("content-type") || "").startsWith("application/json");
      const matches = response.ok && isJson ? await response.json() : [];
      const last = before.slice(before.length - (matches[0] ? matches[0].replaces : 0));
      if (matches.length && !(matches.length === 1 && matches[0].text === last)) open(matches); else close();
    } catch (error) {
      if (error.name !== "AbortError") close();
    }
  }
  text.addEventListener("input", (event) => {
    clearTimeout(timer);
    if (event.inputType && event.inputType.startsWith("insert") && /[\w.`]$/.test(text.value.slice(0, text.selectionStart))) {
      timer = setTimeout(offer, 120);
    } else close();
  });
  text.addEventListener("blur", close);
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); form.requestSubmit(); return; }
    if (event.key === " " && event.ctrlKey) { event.preventDefault(); offer(); return; }
    if (!isOpen()) return;
    if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); close(); }
    else if (event.key === "ArrowDown") { event.preventDefault(); choose(chosen + 1); }
    else if (event.key === "ArrowUp") { event.preventDefault(); choose(chosen - 1); }
    else if (event.key === "Tab" && !event.shiftKey) { event.preventDefault(); insert(chosen); }
  });

  // Rows of a query, as the server sends them; its state and its chart with them.
  const rows = document.getElementById("result-rows");
  if (!rows || !rows.dataset.rows) return;
  const parts = (data) => new DOMParser().parseFromString(data, "text/html");
  const newestFirst = "newestFirst" in rows.dataset;
  const rowsMax = Number(rows.dataset.rowsMax || "100000");
  const stream = new EventSource(rows.dataset.rows);
  const end = () => {
    stream.close();
    document.getElementById("result-stop")?.remove();
  };
  stream.addEventListener("rows", (event) => {
    const fresh = [...parts(`<table>${event.data}</table>`).querySelectorAll("tr")].map((row) => document.adoptNode(row));
    if (newestFirst) rows.prepend(...fresh); else rows.append(...fresh);
    while (rows.children.length > rowsMax) rows.lastElementChild.remove();
  });
  for (const name of ["state", "chart"]) {
    stream.addEventListener(name, (event) => {
      document.getElementById(`result-${name}`)?.replaceChildren(...parts(event.data).body.children);
    });
  }
  stream.addEventListener("end", end);
  stream.addEventListener("error", () => {
    if (stream.readyState === EventSource.CLOSED) end();
  });
  window.addEventListener("pagehide", () => stream.close());
})();
