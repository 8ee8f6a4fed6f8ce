// Colours. Teams get hues that people with any colour vision can tell apart, the first ones best (after Okabe and Ito,
// and Tol); red is kept for preemptions. Of one team, allocations differ in lightness.

const HUES = {
  light: ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#8a7a1f', '#5b4bb5', '#44aa99', '#8c564b', '#7f7f7f'],
  dark: ['#3d9bd8', '#f0b13c', '#27b98b', '#dc94bd', '#86cdf5', '#b9a94a', '#9a8cf0', '#6fd0c0', '#c08e82', '#a8a8a8'],
};
const SHADES = [0, 0.24, -0.2]; // towards white, or black, of the allocations of a team in turn
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3]];

const darkness = matchMedia('(prefers-color-scheme: dark)');
const themed = [];

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === 'dark' : darkness.matches;
}

function rgb(hex) {
  const number = parseInt(hex.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

function mixed(one, other, part) {
  return one.map((value, at) => value + (other[at] - value) * part);
}

function shaded(color, by) {
  return mixed(color, by < 0 ? [0, 0, 0] : [255, 255, 255], Math.abs(by));
}

function css(color) {
  return `rgb(${color.map(Math.round).join(' ')})`;
}

function hue(place) {
  const hues = HUES[isDark() ? 'dark' : 'light'];
  const round = Math.floor(place / hues.length);
  return shaded(rgb(hues[place % hues.length]), round ? (round % 2 ? 0.35 : -0.3) : 0);
}

function variable(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// What the pictures need, read once per change of theme.
function pictureColors(teams) {
  const every = [];
  for (let team = 0; team < teams; team++) SHADES.forEach((by) => every.push(shaded(hue(team), by)));
  return {
    teams: every,
    flat: every.map((_, key) => every[key - (key % SHADES.length)]),
    ground: rgb(variable('ground')),
    idle: rgb(variable('idle')),
    closed: rgb(variable('closed')),
    landing: rgb(variable('landing')),
    edge: rgb(variable('edge')),
    muted: rgb(variable('muted')),
  };
}

function chooseTheme(choice) {
  if (choice) document.documentElement.dataset.theme = choice;
  else delete document.documentElement.dataset.theme;
  themed.forEach((tell) => tell());
}

darkness.addEventListener('change', () => themed.forEach((tell) => tell()));
