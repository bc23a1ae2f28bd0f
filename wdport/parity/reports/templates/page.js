// Sorts and filters the table of layers, lets the keyboard scroll wide tables, and opens everything for printing.
// Without it the page reads the same, in the order of the computation.
const make = (name, properties, ...children) => {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
};

for (const table of document.querySelectorAll("table.sort")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];

  const key = (row, column) => {
    const cell = row.cells[column];
    if (!("v" in cell.dataset)) return cell.textContent;
    const value = cell.dataset.v === "inf" ? Infinity : Number(cell.dataset.v);
    return Number.isNaN(value) ? Infinity : value;
  };
  const compare = (a, b) => (a === b ? 0 : a < b ? -1 : 1);
  const sort = (head, column) => {
    const first = head.classList.contains("n") && column > 0 ? "descending" : "ascending";
    const other = first === "descending" ? "ascending" : "descending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    heads.forEach((each) => each.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", order);
    const sign = order === "descending" ? -1 : 1;
    body.append(...[...body.rows].sort((a, b) => sign * compare(key(a, column), key(b, column))));
  };
  heads.forEach((head, column) => {
    const button = make("button", { type: "button", title: "sort by this column" }, ...head.childNodes);
    button.addEventListener("click", () => sort(head, column)); // by Enter and Space as well
    head.append(button);
  });

  const box = make("input", { type: "search", placeholder: "part of a name" });
  const only = make("input", { type: "checkbox" });
  const count = make("output", {});
  const filter = () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word)) || (only.checked && !row.querySelector(".bad"));
      shown += !row.hidden;
    }
    count.value = `${shown} of ${rows.length} shown`;
  };
  box.addEventListener("input", filter);
  only.addEventListener("change", filter);
  filter();
  const tools = make("p", { className: "tools" }, make("label", {}, "Filter ", box));
  tools.append(make("label", {}, only, " beyond a bound"), count);
  table.closest(".scroll").before(tools);
}

const reachable = () => {
  for (const frame of document.querySelectorAll(".scroll")) {
    const scrolls = frame.scrollWidth > frame.clientWidth || frame.scrollHeight > frame.clientHeight;
    if (scrolls) frame.tabIndex = 0;
    else frame.removeAttribute("tabindex");
  }
};
addEventListener("resize", reachable);
document.addEventListener("toggle", reachable, true);
reachable();

let closed = [];
addEventListener("beforeprint", () => {
  closed = [...document.querySelectorAll("details:not([open])")];
  closed.forEach((each) => (each.open = true));
});
addEventListener("afterprint", () => closed.forEach((each) => (each.open = false)));
