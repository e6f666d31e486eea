"""Theory you can play with: one HTML page with the bounds of section 4 and a game of section 5.

tables    gaps, payoffs and bounds on LOOP, CLIFF, UNICYCLE and TREE over a grid of T, ε and H
rounds    a small game between π and f, round by round
page      the page, from body.html, page.css, chart.js, bounds.js and game.js
"""
