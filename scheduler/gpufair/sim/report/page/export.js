// Pictures as PNG files: what is on the screen, with its title, the policies' names and the legend.

const EDGE = 16;

function pngOf(title, parts, legend) {
  const ratio = devicePixelRatio || 1;
  const width = Math.max(...parts.map(({ canvas, x }) => x + canvas.clientWidth)) + 2 * EDGE;
  const bottom = Math.max(...parts.map(({ canvas, y }) => y + canvas.clientHeight));
  const sheet = document.createElement('canvas');
  const context = sheet.getContext('2d');
  const rows = legendRows(context, legend, width - 2 * EDGE);
  const height = 40 + bottom + rows.length * 20 + 2 * EDGE;
  // Browsers refuse larger ones; a coarser picture is better than none.
  const scale = Math.min(ratio, 16000 / height, 16000 / width);
  Object.assign(sheet, { width: Math.round(width * scale), height: Math.round(height * scale) });
  context.scale(scale, scale);
  context.fillStyle = variable('ground');
  context.fillRect(0, 0, width, height);
  context.fillStyle = variable('ink');
  context.font = '600 16px system-ui, sans-serif';
  context.textBaseline = 'middle';
  context.fillText(clipped(context, title, width - 2 * EDGE), EDGE, EDGE + 8);
  for (const { canvas, x, y, name } of parts) {
    context.drawImage(canvas, EDGE + x, 40 + y, canvas.clientWidth, canvas.clientHeight);
    context.font = '600 13px system-ui, sans-serif';
    context.fillStyle = variable('ink');
    if (name) context.fillText(name, EDGE + x, 40 + y - 12);
  }
  context.font = '12px system-ui, sans-serif';
  rows.forEach((row, at) => row.forEach(({ name, color, x }) => {
    const y = 40 + bottom + EDGE + at * 20;
    context.fillStyle = color;
    context.fillRect(EDGE + x, y - 5, 10, 10);
    context.fillStyle = variable('ink');
    context.fillText(name, EDGE + x + 15, y);
  }));
  return sheet;
}

function legendRows(context, legend, width) {
  context.font = '12px system-ui, sans-serif';
  const rows = [];
  let x = Infinity;
  for (const entry of legend) {
    const needed = context.measureText(entry.name).width + 34;
    if (x + needed > width) {
      rows.push([]);
      x = 0;
    }
    rows.at(-1).push({ ...entry, x });
    x += needed;
  }
  return rows;
}

// Canvases where they stand in a holder, each under its name.
function partsOf(holder, canvases) {
  const corner = holder.getBoundingClientRect();
  return canvases.map(([canvas, name]) => {
    const frame = canvas.getBoundingClientRect();
    return { canvas, name, x: frame.left - corner.left, y: frame.top - corner.top };
  });
}

async function download(sheet, name) {
  const blob = await new Promise((done) => sheet.toBlob(done, 'image/png'));
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = `${name.replace(/[^\p{L}\p{N}]+/gu, '-').replace(/^-|-$/g, '').slice(0, 80) || 'report'}.png`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
