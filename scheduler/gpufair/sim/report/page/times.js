// Times and amounts, for people.

const STEPS_S = [1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 172800, 432000, 604800, 1209600];

function clock(data, tick) {
  const seconds = tick * data.tick_s;
  if (data.epoch_s !== null) return new Date((data.epoch_s + seconds) * 1000).toISOString().replace('T', ' ').slice(0, 19) + 'Z';
  const rest = Math.floor(seconds % 86400);
  const two = (number) => String(number).padStart(2, '0');
  return `day ${Math.floor(seconds / 86400)} ${two(Math.floor(rest / 3600))}:${two(Math.floor(rest / 60) % 60)}:${two(rest % 60)}`;
}

function minute(data, tick) {
  return clock(data, tick).replace(/:\d\dZ?$/, '');
}

function span(seconds) {
  if (seconds < 0.9995) return seconds ? `${Math.round(seconds * 1000)} ms` : '0 s';
  if (seconds < 120) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 7200) return `${Number((seconds / 60).toFixed(1))} min`;
  if (seconds < 172800) return `${Number((seconds / 3600).toFixed(1))} h`;
  return `${Number((seconds / 86400).toFixed(1))} d`;
}

function amount(number) {
  return Math.abs(number) >= 100 ? Math.round(number).toLocaleString('en') : String(Number(number.toFixed(number < 10 ? 2 : 1)));
}

// Round instants between two ticks, at most so many, each with what to write beside it.
function timeTicks(data, t0, t1, most) {
  const [from, to] = [t0 * data.tick_s, t1 * data.tick_s];
  const offset = data.epoch_s === null ? 0 : data.epoch_s;
  const step = STEPS_S.find((one) => (to - from) / one <= most) ?? Math.ceil((to - from) / most / 604800) * 604800;
  const found = [];
  for (let at = Math.ceil((from + offset) / step) * step; at <= to + offset; at += step) {
    const tick = (at - offset) / data.tick_s;
    found.push([tick, tickLabel(data, tick, step)]);
  }
  return found;
}

function tickLabel(data, tick, step) {
  const text = clock(data, tick);
  const time = text.replace('Z', '').slice(-8);
  const day = data.epoch_s === null ? text.slice(0, -9) : text.slice(5, 10);
  if (step >= 86400) return day;
  if (step < 60) return time;
  return time.startsWith('00:00') ? day : time.slice(0, 5);
}

function niceStep(most, parts) {
  const rough = most / parts || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999);
}
