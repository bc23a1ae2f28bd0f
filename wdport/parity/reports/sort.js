// Sorts a table by the column whose head is clicked; without it the page reads the same.
for (const table of document.querySelectorAll("table.sort")) {
  const heads = [...table.tHead.rows[0].cells];
  const key = (row, column) => {
    const cell = row.cells[column];
    if (!("v" in cell.dataset)) return cell.textContent;
    const value = cell.dataset.v === "inf" ? Infinity : Number(cell.dataset.v);
    return Number.isNaN(value) ? Infinity : value;
  };
  const compare = (a, b) => (a === b ? 0 : a < b ? -1 : 1);
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    const sort = () => {
      const downward = head.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", downward);
      const sign = downward === "descending" ? -1 : 1;
      const rows = [...table.tBodies[0].rows];
      rows.sort((a, b) => sign * compare(key(a, column), key(b, column)));
      table.tBodies[0].append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => event.key === "Enter" && sort());
  });
}
