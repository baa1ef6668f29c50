"use strict";
(() => {
  const tip = document.getElementById("tip");
  const marks = [...document.querySelectorAll(".mark")];

  let shown = null;

  const show = (mark) => {
    shown = mark;
    tip.textContent = mark.getAttribute("aria-label");
    tip.hidden = false;
    const target = mark.querySelector(".dot, .shape") || mark;
    const box = target.getBoundingClientRect();
    const size = tip.getBoundingClientRect();
    const width = document.documentElement.clientWidth;
    const middle = box.left + box.width / 2 - size.width / 2;
    const above = box.top - size.height - 10;
    tip.style.left = Math.max(8, Math.min(middle, width - size.width - 8)) + "px";
    tip.style.top = (above > 4 ? above : box.bottom + 10) + "px";
  };
  const hide = () => { shown = null; tip.hidden = true; };

  // One stop of the Tab key for each chart; the arrow keys walk inside it.
  const walk = (mark, event) => {
    const forward = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const row = [...mark.closest("svg").querySelectorAll(".mark")];
    const next = forward ? row[(row.indexOf(mark) + forward + row.length) % row.length]
      : event.key === "Home" ? row[0] : event.key === "End" ? row[row.length - 1] : null;
    if (next) { event.preventDefault(); next.focus(); }
  };
  const stop = (mark) => {
    for (const one of mark.closest("svg").querySelectorAll(".mark")) {
      one.setAttribute("tabindex", one === mark ? "0" : "-1");
    }
  };
  for (const svg of document.querySelectorAll("svg.chart")) {
    const first = svg.querySelector(".mark");
    if (first) { stop(first); }
  }
  for (const mark of marks) {
    mark.addEventListener("pointerenter", () => show(mark));
    mark.addEventListener("pointerleave", hide);
    mark.addEventListener("focus", () => { stop(mark); show(mark); });
    mark.addEventListener("blur", hide);
    mark.addEventListener("keydown", (event) => walk(mark, event));
  }
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") { hide(); } });
  document.addEventListener("scroll", () => { if (shown) { show(shown); } }, { passive: true, capture: true });

  // A box that does not scroll need not stop the Tab key.
  const boxes = document.querySelectorAll(".scroll");
  const measure = () => {
    for (const box of boxes) {
      const scrolls = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight;
      if (scrolls) { box.setAttribute("tabindex", "0"); } else { box.removeAttribute("tabindex"); }
    }
  };
  measure();
  addEventListener("resize", measure);
  document.addEventListener("toggle", measure, true);

  const copyOldWay = (text) => {
    const box = document.createElement("textarea");
    box.value = text;
    box.setAttribute("readonly", "");
    box.className = "offscreen";
    document.body.append(box);
    box.select();
    let done = false;
    try { done = document.execCommand("copy"); } catch { done = false; }
    box.remove();
    return done;
  };
  const copy = async (text) => {
    if (copyOldWay(text)) { return true; }
    try { await navigator.clipboard.writeText(text); return true; } catch { return false; }
  };
  for (const button of document.querySelectorAll(".copy")) {
    const status = button.parentElement.querySelector(".copied");
    button.addEventListener("blur", () => { status.textContent = ""; });
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copies);
      const done = await copy(source.textContent);
      button.focus();
      if (!done) { getSelection().selectAllChildren(source); }
      status.textContent = done ? "Copied" : "Selected: press Ctrl+C";
    });
  }

  const embedded = document.getElementById("frontier");
  if (!embedded) { return; }
  const points = JSON.parse(embedded.textContent).points;
  const pick = (index) => {
    for (const one of document.querySelectorAll("[aria-pressed]")) {
      one.setAttribute("aria-pressed", String(one.dataset.index === index));
    }
    for (const row of document.querySelectorAll("#points tr[data-index]")) {
      row.classList.toggle("picked", row.dataset.index === index);
    }
    const mark = document.querySelector(`.mark[data-index="${index}"]`);
    const point = points[Number(index)];
    document.getElementById("chosen-words").textContent = mark ? mark.getAttribute("aria-label")
      : `${point.method}, ${point.model}: values unknown`;
    document.getElementById("chosen-text").firstChild.textContent = point.command;
    document.getElementById("chosen-command").hidden = false;
    document.getElementById("chosen").classList.add("full");
  };
  for (const mark of document.querySelectorAll(".mark.point")) {
    mark.addEventListener("click", () => pick(mark.dataset.index));
    mark.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(mark.dataset.index); }
    });
  }
  for (const button of document.querySelectorAll(".pick")) {
    button.addEventListener("click", () => pick(button.dataset.index));
  }
})();
