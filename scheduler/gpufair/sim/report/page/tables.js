// Tables can be sorted by any column: numbers as numbers, the rest as text.

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement('button');
    button.type = 'button';
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => sortBy(table, heads, column));
  });
}

function sortBy(table, heads, column) {
  const falling = heads[column].getAttribute('aria-sort') === 'ascending';
  heads.forEach((head) => head.removeAttribute('aria-sort'));
  heads[column].setAttribute('aria-sort', falling ? 'descending' : 'ascending');
  const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
  const order = (one, other) => {
    const [a, b] = [value(one), value(other)];
    // What is not known comes last, however it is sorted.
    if (a === '' || b === '') return (a === '') - (b === '') || 0;
    const numbers = [Number(a), Number(b)];
    const less = numbers.some(Number.isNaN) ? a.localeCompare(b) : numbers[0] - numbers[1];
    return falling ? -less : less;
  };
  const body = table.tBodies[0];
  body.append(...[...body.rows].sort(order));
}
