// What pages do beside htmx: sliders beside numbers, fields that belong to a choice, copying, where the focus goes.
"use strict";

// A slider moves along a list of values; its number is what is sent.
function slider(range) {
  const values = range.dataset.values.split(" ");
  const field = document.getElementById(range.dataset.for);
  range.max = values.length - 1;
  const say = () => range.setAttribute("aria-valuetext", field.value);
  const place = () => {
    const wanted = Number(field.value.replace(",", "."));
    if (!(wanted > 0)) return;
    let best = 0;
    values.forEach((value, index) => {
      const away = (one) => Math.abs(Math.log(Number(one)) - Math.log(wanted));
      if (away(value) < away(values[best])) best = index;
    });
    range.value = best;
    say();
  };
  range.addEventListener("input", () => { field.value = values[Number(range.value)]; say(); });
  field.addEventListener("input", place);
  place();
}

// data-when="what=table texts": shown, and sent, where that is chosen.
function choices() {
  for (const part of document.querySelectorAll("[data-when]")) {
    const [name, wanted] = part.dataset.when.split("=");
    const chosen = document.querySelector(`input[name="${name}"]:checked`);
    part.hidden = !chosen || !wanted.split(" ").includes(chosen.value);
    for (const field of part.querySelectorAll("input, select, textarea")) field.disabled = part.hidden;
  }
}

document.addEventListener("change", (event) => {
  const changed = event.target;
  if (changed.type === "radio") choices();
  if (changed.dataset && changed.dataset.hint) {
    const said = changed.selectedOptions[0];
    document.getElementById(changed.dataset.hint).textContent = (said && said.dataset.say) || "";
  }
}, true);

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not copied: select the text and copy it";
  }
  setTimeout(() => { button.textContent = before; }, 2000);
});

// A link to a group of fields puts the focus into it; one to a hidden part shows nothing and is left alone.
document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  if (!link) return;
  const place = document.getElementById(link.getAttribute("href").slice(1));
  if (!place) return;
  const field = place.matches("fieldset") ? place.querySelector("input") : place;
  event.preventDefault();
  place.scrollIntoView({ block: "center" });
  field.focus();
});

// What is open stays open when the panel is made anew, and the focus stays where it was.
const opened = new Set();
document.addEventListener("toggle", (event) => {
  const summary = event.target.querySelector && event.target.querySelector("summary");
  if (!summary || !event.target.closest("#live")) return;
  if (event.target.open) opened.add(summary.textContent); else opened.delete(summary.textContent);
}, true);
document.addEventListener("htmx:afterSwap", (event) => {
  choices();
  for (const part of event.target.querySelectorAll("details")) {
    if (opened.has(part.querySelector("summary").textContent)) part.open = true;
  }
  if (event.target.id === "rows") {
    const typed = document.getElementById("names");
    if (typed) typed.value = "";
    const last = event.target.querySelector("fieldset:last-of-type select");
    if (last) last.focus();
  }
});

for (const range of document.querySelectorAll("input[type=range][data-for]")) slider(range);
choices();
const wrong = document.getElementById("problems");
if (wrong) wrong.focus();
