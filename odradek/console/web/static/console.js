// Beside htmx: a refresh must neither take the focus away nor scroll tables and pictures back, "/" goes to the search
// field, and a refresh that fails is quiet.
const places = new Map();
document.addEventListener("htmx:beforeSwap", (event) => {
  const active = document.activeElement;
  const polls = event.detail.requestConfig?.triggeringEvent === undefined && event.target.id === "live";
  const selected = !(window.getSelection()?.isCollapsed ?? true);
  if (polls && (selected || (active && active !== document.body && event.target.contains(active)))) {
    event.detail.shouldSwap = false;
    return;
  }
  for (const each of event.target.querySelectorAll(".scroll[aria-label]")) {
    places.set(each.getAttribute("aria-label"), each.scrollLeft);
  }
});
document.addEventListener("htmx:afterSettle", () => {
  for (const each of document.querySelectorAll(".scroll[aria-label]")) {
    each.scrollLeft = places.get(each.getAttribute("aria-label")) ?? each.scrollLeft;
  }
  places.clear();
});
document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, textarea, select");
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const field = document.querySelector("input[type=search]");
    if (field) {
      event.preventDefault();
      field.focus();
      field.select();
    }
  }
});
