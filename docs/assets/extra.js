// What the theme leaves out for keyboards and screen readers.
document$.subscribe(() => {
  document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
  for (const area of document.querySelectorAll(".md-typeset pre > code, .md-typeset__scrollwrap")) area.tabIndex = 0;
});
// The buttons of a code block come later, in a nav of their own: as landmarks they would all have one name.
new MutationObserver(() => {
  for (const nav of document.querySelectorAll(".md-code__nav:not([role])")) nav.setAttribute("role", "none");
}).observe(document.documentElement, { childList: true, subtree: true });
