// Above each picture: how many GPUs each team holds, stacked; what may be interrupted is paler, idle GPUs are on top.
// Where the rows of a large cluster are too many to follow, this is what can be read at a glance.

const PALE = [0, 0.35, 0.6]; // protected, interruptible, unallocated: how much ground shows through

class Strip {
  constructor(data, policy, look) {
    Object.assign(this, { data, policy, look });
  }

  // GPUs of each team in each state, by pixel column.
  held(width, view) {
    const { data, policy } = this;
    const { bars } = policy;
    const scale = width / (view.t1 - view.t0);
    const teams = data.teams.map(() => PALE.map(() => new Float32Array(width + 1)));
    const x = (tick) => Math.min(width, Math.max(0, (tick - view.t0) * scale));
    for (let bar = 0; bar < bars.size; bar++) {
      if (bars.end[bar] <= view.t0 || bars.start[bar] >= view.t1) continue;
      const job = bars.job[bar];
      const team = teams[data.tree.team[data.jobs.path[job]]];
      const [from, until, to] = [x(bars.start[bar]), x(bars.protectedEnd[bar]), x(bars.end[bar])];
      if (this.look.isFree(job)) covered(team[2], from, to, bars.gpus[bar]);
      else {
        covered(team[0], from, until, bars.gpus[bar]);
        covered(team[1], until, to, bars.gpus[bar]);
      }
    }
    return teams;
  }

  paint(width, height, view, colors) {
    const image = new ImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    pixels.fill(packed(colors.idle));
    const shade = colors.teams.filter((_, key) => key % SHADES.length === 0);
    const perGpu = height / this.data.rows;
    const floors = new Float32Array(width).fill(height);
    this.held(width, view).forEach((states, team) => {
      const color = this.look.isHidden(team) ? colors.muted : shade[team];
      states.forEach((gpus, state) => layer(pixels, width, floors, gpus, perGpu, mixed(color, colors.ground, PALE[state])));
    });
    return image;
  }
}

// One layer of the stack: from `floors` upwards, which it raises.
function layer(pixels, width, floors, gpus, perGpu, color) {
  const ink = packed(color);
  for (let x = 0; x < width; x++) {
    const from = Math.round(floors[x]);
    floors[x] -= gpus[x] * perGpu;
    const to = Math.max(0, Math.round(floors[x]));
    for (let y = to; y < from; y++) pixels[y * width + x] = ink;
  }
}
