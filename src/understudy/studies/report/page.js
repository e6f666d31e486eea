"use strict";
(() => {
  const charts = JSON.parse(document.getElementById("data").textContent);

  const press = (button, on) => button.setAttribute("aria-pressed", String(on));
  const pressed = (button) => button.getAttribute("aria-pressed") === "true";

  for (const figure of document.querySelectorAll("figure.chart")) {
    const chart = charts[Number(figure.dataset.chart)];
    const area = figure.querySelector(".area");
    const cursor = figure.querySelector(".cursor");
    const readout = figure.querySelector(".readout");

    for (const key of figure.querySelectorAll("button.key")) {
      key.addEventListener("click", () => {
        press(key, !pressed(key));
        figure.querySelector(`g[data-series="${key.dataset.series}"]`).classList.toggle("off", !pressed(key));
      });
    }

    const toggle = figure.querySelector("button[data-seeds]");
    if (toggle) {
      toggle.addEventListener("click", () => {
        press(toggle, !pressed(toggle));
        figure.classList.toggle("show-seeds", pressed(toggle));
      });
    }

    const visible = () => chart.series.filter((_, i) =>
      pressed(figure.querySelector(`button.key[data-series="${i}"]`)));

    const leave = () => {
      cursor.hidden = true;
      readout.textContent = "";
    };

    area.addEventListener("pointermove", (event) => {
      const box = area.getBoundingClientRect();
      const [left, right] = chart.x;
      const at = left + (event.clientX - box.left) / box.width * (right - left);
      const xs = visible().flatMap((one) => one.points.map((point) => point[0]));
      if (!xs.length) {
        leave();
        return;
      }
      const x = xs.reduce((best, other) => Math.abs(other - at) < Math.abs(best - at) ? other : best);
      cursor.hidden = false;
      cursor.style.left = `${100 * (x - left) / (right - left)}%`;
      const where = chart.categories.length ? chart.categories[x] : x.toLocaleString("en-US");
      const values = visible().flatMap((one) => one.points.filter((point) => point[0] === x)
        .map((point) => `${one.name}: ${point[1]}` + (point[2] === 1 && chart.over === "seeds" ? " (one seed)" : "")));
      readout.textContent = `${where} ${chart.unit}, ${chart.statistic}. ${values.join("; ")}`;
    });
    area.addEventListener("pointerleave", leave);
  }
})();
