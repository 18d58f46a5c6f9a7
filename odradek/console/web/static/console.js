// Beside htmx: a refresh must not take the focus away, "/" goes to the search field, and a refresh that fails is quiet.
document.addEventListener("htmx:beforeSwap", (event) => {
  const active = document.activeElement;
  const polls = event.detail.requestConfig?.triggeringEvent === undefined && event.target.id === "live";
  const selected = !(window.getSelection()?.isCollapsed ?? true);
  if (polls && (selected || (active && active !== document.body && event.target.contains(active)))) {
    event.detail.shouldSwap = false;
  }
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
