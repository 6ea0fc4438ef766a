"use strict";
// Everything works without this script, as plain links and forms. It loads the live parts of a page again: when the server
// reports that the model has changed, and while someone types into a search. Parts are elements with an id and `data-live`.
(() => {
  const state = document.getElementById("live-state");
  let loading = null;

  // Replaces the live parts by the same parts of the page at `address`. `only`: one id.
  async function refresh(address, only) {
    if (loading) loading.abort();
    const mine = (loading = new AbortController());
    try {
      const response = await fetch(address, { signal: mine.signal, headers: { accept: "text/html" } });
      if (response.redirected && new URL(response.url).pathname === "/login") { location.reload(); return; }
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live][id]")) {
        if (only && part.id !== only) continue;
        const other = fresh.getElementById(part.id);
        if (other && other.innerHTML !== part.innerHTML && !part.contains(document.activeElement)) {
          const scrolled = [...part.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
          part.replaceWith(document.adoptNode(other));
          other.querySelectorAll(".scroll").forEach((box, index) => { box.scrollLeft = scrolled[index] || 0; });
        }
      }
      state.textContent = "";
    } catch (error) {
      if (error.name !== "AbortError") state.textContent = document.body.dataset.lost;
    }
  }

  // Search as you type: the form's own address, without leaving the page.
  for (const form of document.querySelectorAll("form[data-search]")) {
    let timer = 0;
    const search = () => {
      const address = `${form.action}?${new URLSearchParams(new FormData(form))}`;
      history.replaceState(null, "", address);
      refresh(address, form.dataset.search);
    };
    form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(search, 120); });
    form.addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(timer); search(); });
  }

  // Rows of records: a search that continues by itself, and a live tail. A button stops either.
  const rows = document.getElementById("rows");
  const ROWS_MAX = 300;
  const rowsOf = (text) => [...new DOMParser().parseFromString(text, "text/html").querySelectorAll("tr")];
  async function goOn() {
    const stopping = new AbortController();
    const stop = document.querySelector("#progress [data-stop]");
    stop.hidden = false;
    stop.addEventListener("click", () => stopping.abort());
    let link = document.querySelector("#progress [data-go-on]");
    try {
      while (link && rows.children.length < ROWS_MAX) {
        const response = await fetch(link.href, { signal: stopping.signal });
        const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
        const progress = fresh.getElementById("progress");
        if (!progress) break;
        rows.append(...[...fresh.getElementById("rows").children].map((row) => document.adoptNode(row)));
        if (rows.children.length) document.getElementById("no-rows")?.remove();
        else document.getElementById("no-rows")?.replaceWith(document.adoptNode(fresh.getElementById("no-rows")));
        for (const name of ["p", "a"]) {
          const [old, other] = [document.querySelector(`#progress ${name}`), progress.querySelector(name)];
          if (old && other) old.replaceWith(document.adoptNode(other)); else if (old) old.remove();
        }
        link = document.querySelector("#progress [data-go-on]");
      }
    } catch (error) {
      if (error.name !== "AbortError") state.textContent = document.body.dataset.lost;
    }
    stop.hidden = true;
  }
  if (document.querySelector("#progress [data-go-on]")) goOn();
  if (rows && rows.dataset.tail) {
    const stop = document.querySelector("[data-stop]");
    const tail = new EventSource(rows.dataset.tail);
    const end = () => { tail.close(); stop.hidden = true; };
    stop.hidden = false;
    stop.addEventListener("click", end);
    window.addEventListener("pagehide", end);
    tail.addEventListener("records", (event) => {
      rows.prepend(...rowsOf(`<table>${event.data}</table>`).map((row) => document.adoptNode(row)));
      while (rows.children.length > ROWS_MAX) rows.lastElementChild.remove();
    });
  }

  // Copying a key or a value as it is shown, as text alone. Where the clipboard has no API (pages that are neither https nor of
  // this machine) or refuses, the text is selected and the browser's own command copies it; if that fails, too, the reader can.
  function copySelected(shown, text) {
    getSelection().selectAllChildren(shown);
    const asText = (event) => { event.clipboardData.setData("text/plain", text); event.preventDefault(); };
    document.addEventListener("copy", asText, { once: true });
    const isCopied = document.execCommand("copy");
    document.removeEventListener("copy", asText);
    return isCopied;
  }
  for (const button of document.querySelectorAll("[data-copy]")) {
    const shown = document.getElementById(button.dataset.copy);
    const status = document.getElementById(`${button.dataset.copy}-copied`);
    button.hidden = false;
    button.addEventListener("click", async () => {
      const text = shown.textContent.replace(/\n$/, "");
      let isCopied = true;
      status.textContent = "";
      try { await navigator.clipboard.writeText(text); } catch { isCopied = copySelected(shown, text); }
      status.textContent = isCopied ? button.dataset.copied : button.dataset.selected;
    });
  }

  // Keys: an element with `data-key` is reached by that key ("/" goes to the search); Escape leaves a field.
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, [contenteditable]")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const target = [...document.querySelectorAll("[data-key]")].find((element) => element.dataset.key === event.key);
    if (target) { event.preventDefault(); target.focus(); target.select(); }
  });

  // Live updates, as long as the page is seen.
  if (document.querySelector("[data-live]")) {
    let stream = null;
    const open = () => {
      if (stream || document.hidden) return;
      stream = new EventSource("/live");
      stream.addEventListener("changed", () => refresh(location.href));
      stream.addEventListener("error", () => { state.textContent = document.body.dataset.lost; });
      stream.addEventListener("open", () => { state.textContent = ""; });
    };
    const close = () => { if (stream) { stream.close(); stream = null; } };
    document.addEventListener("visibilitychange", () => (document.hidden ? close() : (open(), refresh(location.href))));
    window.addEventListener("pagehide", close);
    open();
  }
})();
