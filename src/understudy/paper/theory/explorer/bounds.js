/* Gaps and bounds: sliders over the grid of T, ε and H. */

(() => {
  const { epsilons, kinds, tasks } = data.bounds;
  const FORMULAS = { payoff: ["2εT", "2εT²", "εHT"], learner: ["2T · payoff", "2T² · payoff", "HT · payoff"] };
  const now = { task: tasks[0], horizon: 3, epsilon: 2, back: 0, view: "payoff", along: "T", log: true };
  const chart = new Chart(byId("bounds-chart"), "");

  const fraction = (epsilon) => `1/${Math.round(1 / epsilon)}`;
  const formula = (kind) => FORMULAS[now.view][kind];
  const loss = (horizon = now.horizon) => now.task.recoverability[now.back][horizon];
  const rows = (back, horizon, epsilon) => now.task.cells[now.view][back][horizon][epsilon];
  const here = () => rows(now.back, now.horizon, now.epsilon);

  /** Positions along the horizontal axis: x, its label, and the cells there. */
  function along() {
    const { task } = now;
    if (now.along === "T") return task.horizons.map((x, i) => [x, String(x), rows(now.back, i, now.epsilon), x]);
    const T = task.horizons[now.horizon];
    return epsilons.map((x, i) => [x, fraction(x), rows(now.back, now.horizon, i), T]);
  }

  function series(points) {
    const line = (kind, field) => points.filter(([, , cells]) => cells[kind]).map(([x, , cells]) => [x, cells[kind][field]]);
    // On-Q gaps equal those of reward or of off-Q moments in places: they are narrow, over wide ones.
    const gaps = now.view === "learner"
      ? [{ name: "gap of the learner", style: "k3", points: line(0, 1) }]
      : kinds.map((name, k) => ({ name: `gap, ${name}`, style: `k${k}${k === 2 ? "" : " wide"}`, points: line(k, 1) }));
    const limits = kinds.map((name, k) => ({ name: `bound, ${name}: ${formula(k)}`, style: `k${k} bound`, points: line(k, 2) }));
    return [
      { name: "T: no gap is larger", style: "k4 limit", points: points.map(([x, , , T]) => [x, T]) },
      ...gaps,
      ...limits,
    ];
  }

  /** Logarithmic axes have one range for all ε and H of a task, so that curves move and not the axes. */
  function yRange(lines) {
    if (!now.log) {
      const [limit, ...others] = lines.map((one) => Math.max(0, ...one.points.map(([, y]) => y)));
      return [0, 1.05 * Math.min(Math.max(...others), 2 * limit)];
    }
    const all = now.task.cells[now.view].flat(3).filter(Boolean);
    return [Math.min(...all.map(([, gap]) => gap)) / 1.6, Math.max(...all.map(([, , bound]) => bound)) * 1.6];
  }

  function draw() {
    const T = now.task.horizons[now.horizon], points = along(), lines = series(points);
    const xs = points.map(([x]) => x), [first, last] = [xs[0], xs.at(-1)];
    const xRange = now.log ? [first / 1.15, last * 1.15] : [0, last * 1.03];
    const fixed = now.along === "T" ? `ε = ${fraction(epsilons[now.epsilon])}` : `T = ${T}`;
    chart.title.textContent = `${now.task.name}: gap and bounds at ${fixed}`;
    chart.draw({
      series: lines,
      at: now.along === "T" ? T : epsilons[now.epsilon],
      range: [xRange, yRange(lines)],
      log: now.log,
      xTicks: points.map(([x, name]) => [x, name]),
      unit: now.along === "T" ? "steps of an episode, T" : "error, ε",
      text: summary(),
    });
    table();
    byId("about").textContent = now.task.about;
  }

  function summary() {
    const T = now.task.horizons[now.horizon];
    const parts = kinds.map((name, k) => here()[k]
      ? `${name}: gap ${number(here()[k][1])}, bound ${number(here()[k][2])}` : `${name}: no learner with this payoff`);
    return `${now.task.name}, T = ${T}, ε = ${fraction(epsilons[now.epsilon])}, H = ${number(loss())}. ${parts.join("; ")}.`;
  }

  function table() {
    const T = now.task.horizons[now.horizon], half = now.task.horizons.indexOf(T / 2);
    const growth = (kind) => {
      const before = half < 0 ? null : rows(now.back, half, now.epsilon)[kind];
      return before && here()[kind] ? `× ${number(here()[kind][1] / before[1], 3)}` : "–";
    };
    const head = ["moments", "payoff", "gap", "bound", "gap / bound", `gap from T = ${half < 0 ? "T/2" : T / 2} to ${T}`];
    const body = kinds.map((name, k) => {
      const cell = here()[k];
      const texts = cell ? [number(cell[0]), number(cell[1]), number(cell[2]), number(cell[1] / cell[2], 3), growth(k)]
        : ["none: εT > 1", "–", "–", "–", "–"];
      return make("tr", {}, make("th", { scope: "row" }, make("span", { class: `swatch k${k}` }), name), ...texts.map((text) => make("td", {}, text)));
    });
    const label = "The numbers at the sliders";
    byId("bounds-table").replaceChildren(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
      make("table", {}, make("caption", {}, make("span", {}, `${summary().split(". ")[0]}. Growth × 2 is linear in T, × 4 is quadratic.`)),
        make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))), make("tbody", {}, ...body))));
  }

  const setHorizon = slide("horizon", (i) => String(now.task.horizons[i]), (i) => { now.horizon = i; refresh(); });
  const setEpsilon = slide("epsilon", (i) => `${fraction(epsilons[i])} = ${number(epsilons[i], 3)}`, (i) => { now.epsilon = i; refresh(); });
  const setBack = slide("back", () => backText(), (i) => { now.back = i; refresh(); });

  function backText() {
    const [found, wanted] = [loss(), now.task.ways_back[now.back]];
    if (now.task.ways_back.length === 1) return `${number(found)}, by the task`;
    return found < wanted ? `${number(found)}: T − 1, not ${wanted}` : number(found);
  }

  function refresh() {
    setHorizon(now.horizon, now.task.horizons.length - 1);
    setEpsilon(now.epsilon, epsilons.length - 1);
    setBack(now.back, now.task.ways_back.length - 1);
    byId("back").disabled = now.task.ways_back.length === 1;
    draw();
  }

  choices("task", tasks.map((task) => [task.name, task.name]), (name) => {
    now.task = tasks.find((task) => task.name === name);
    now.horizon = Math.min(now.horizon, now.task.horizons.length - 1);
    now.back = Math.min(now.back, now.task.ways_back.length - 1);
    refresh();
  });
  choices("view", [["payoff", "the payoff: each game has its own learner"], ["learner", "an error probability of one learner"]],
    (value) => { now.view = value; refresh(); });
  choices("along", [["T", "T"], ["ε", "ε"]], (value) => { now.along = value; refresh(); });
  choices("scale", [["log", "log-log"], ["linear", "linear"]], (value) => { now.log = value === "log"; refresh(); });
  refresh();
})();
