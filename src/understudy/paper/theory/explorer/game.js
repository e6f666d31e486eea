/* The game between π and f: boards, curves and a player. */

(() => {
  const game = data.game, SIZE = 100, FRAME_MS = 260;
  const now = { side: "primal", shown: "average", frame: 0, timer: null };
  const chart = new Chart(byId("game-chart"), "Payoff and certificate");
  const last = game.rounds.length - 1;

  const triangle = (action) => {
    const corners = [[0, 0], [SIZE, 0], [SIZE, SIZE], [0, SIZE]];
    return `M${corners[action].join(" ")}L${corners[(action + 1) % 4].join(" ")}L${SIZE / 2} ${SIZE / 2}Z`;
  };

  /** An arrow from the middle of a cell, as long as the action's share. */
  function arrow([right, down], share) {
    const [middle, length, head] = [SIZE / 2, 6 + 36 * share, 4 + 8 * share];
    const [x, y] = [middle + right * length, middle + down * length];
    const side = (sign) => `${x - head * right + sign * head * down} ${y - head * down + sign * head * right}`;
    return `M${middle} ${middle}L${x} ${y}M${side(1)}L${x} ${y}L${side(-1)}`;
  }

  const largest = (frame) => Math.max(...frame.f.flat().map(Math.abs));

  function drawBoard(board, frame, label) {
    const cells = [], darkest = Math.max(1, largest(frame));
    for (let x = 0; x < game.width; x += 1) {
      for (let y = 0; y < game.height; y += 1) {
        const state = game.cells.findIndex(([column, row]) => column === x && row === y);
        const group = svg("g", { transform: `translate(${SIZE * x} ${SIZE * y})` });
        group.append(svg("rect", { class: state < 0 ? "cell wall" : "cell", width: SIZE, height: SIZE }));
        if (state >= 0) fill(group, state, frame, [x, y], darkest);
        cells.push(group);
      }
    }
    board.setAttribute("viewBox", `-2 -2 ${SIZE * game.width + 4} ${SIZE * game.height + 4}`);
    board.setAttribute("aria-label", label);
    board.replaceChildren(...cells);
  }

  function fill(group, state, frame, place, darkest) {
    const goal = String(place) === String(game.goal);
    const actions = game.moves.map((_, action) => action).filter((action) => game.available[state][action]);
    for (const action of actions) {
      const f = frame.f[state][action], d = goal ? `M0 0H${SIZE}V${SIZE}H0Z` : triangle(action);
      group.append(svg("path", { class: f > 0 ? "cost" : "gain", d, opacity: (0.85 * Math.abs(f) / darkest).toFixed(3) },
        svg("title", {}, `f = ${(f / 1000).toFixed(3)}, share ${frame.actions[state][action]}%`)));
    }
    const visits = Math.min(frame.visits[state], 1);
    for (const action of goal ? [] : actions) {
      const share = frame.actions[state][action] / 100;
      if (share >= 0.01) group.append(svg("path", { 
        class: "arrow", d: arrow(game.moves[action], share), "stroke-width": (2 + 5 * share).toFixed(1), opacity: (0.12 + 0.88 * visits).toFixed(2),
      }));
    }
    const letter = goal ? "G" : String(place) === String(game.start) ? "S" : "";
    if (letter) group.append(svg("text", { class: "place", x: 7, y: 20 }, letter));
  }

  function draw() {
    const side = game.sides[now.side], n = game.rounds[now.frame];
    const upper = side[now.shown][now.frame].actions[game.cells.findIndex((cell) => String(cell) === String(game.start))][0];
    const values = `certificate ${number(side.certificate[now.frame], 3)}, payoff ${number(side.payoff[now.frame], 3)}`;
    drawBoard(byId("board"), side[now.shown][now.frame], `Policy and moment function, round ${n}: ${values}; ${upper}% by the upper route`);
    byId("darkest").textContent = `Darkest: |f| = ${number(largest(side[now.shown][now.frame]) / 1000, 3)}.`;
    const line = (name, style, field) => ({ name, style, points: game.rounds.map((round, i) => [round, side[field][i]]) });
    const all = Object.values(game.sides).flatMap((one) => [...one.certificate, ...one.payoff]);
    chart.draw({
      series: [line("certificate of (π̂, f̂)", "k0 wide", "certificate"), line("payoff of π̂, sup U(π̂, f)", "k1", "payoff")],
      at: n,
      range: [[1, game.rounds[last]], [Math.min(...all) / 1.3, 1]],
      log: true,
      xTicks: ticks([1, game.rounds[last]], true).map((x) => [x, number(x)]),
      unit: "round",
      text: `${now.side}, round ${n}: ${values}`,
    });
    byId("step").disabled = now.frame === last;
    byId("back-one").disabled = now.frame === 0;
  }

  const setRound = slide("round", (i) => {
    const side = game.sides[now.side];
    return `${game.rounds[i]} (certificate ${number(side.certificate[i], 3)}, payoff ${number(side.payoff[i], 3)})`;
  }, (i) => { pause(); show(i); });

  function show(frame) {
    now.frame = Math.min(Math.max(frame, 0), last);
    setRound(now.frame, last);
    draw();
    if (now.frame === last) pause();
  }

  function pause() {
    clearInterval(now.timer);
    now.timer = null;
    byId("play").textContent = "Play";
    byId("play").setAttribute("aria-pressed", "false");
  }

  byId("play").addEventListener("click", () => {
    if (now.timer !== null) return pause();
    if (now.frame === last) show(0);
    now.timer = setInterval(() => show(now.frame + 1), FRAME_MS);
    byId("play").textContent = "Pause";
    byId("play").setAttribute("aria-pressed", "true");
    return undefined;
  });
  byId("step").addEventListener("click", () => { pause(); show(now.frame + 1); });
  byId("back-one").addEventListener("click", () => { pause(); show(now.frame - 1); });
  byId("restart").addEventListener("click", () => { pause(); show(0); });
  choices("side", [["primal", "π (primal)"], ["dual", "f (dual)"]], (value) => { now.side = value; show(now.frame); });
  choices("shown", [["average", "averages π̂ and f̂"], ["move", "moves of this round"]], (value) => { now.shown = value; show(now.frame); });

  drawBoard(byId("expert-board"), game.expert, "Expert: two thirds by the upper route");
  show(0);
})();
