"""Charts as people draw them, with what their data must hold: name, code, expected.

The code leaves its figure in ``fig`` or is matplotlib's current figure. What is expected is an expression over the names of the code; a
mapping must be contained, a sequence must be equal, value for value.
"""

MATPLOTLIB = [
    (
        "line",
        "plt.plot([1, 2, 3], [4, 5, 6.5], label='a'); plt.xlabel('Time (s)'); plt.ylabel('speed [m/s]'); plt.title('T'); plt.legend()",
        "{'type': 'line', 'title': 'T', 'width_px': 640, 'height_px': 480, 'x': {'label': 'Time (s)', 'unit': 's', 'scale': 'linear'},"
        " 'y': {'unit': 'm/s'}, 'series': [{'type': 'line', 'name': 'a', 'color': '#1f77b4', 'x': [1, 2, 3], 'y': [4, 5, 6.5]}],"
        " 'legend': ['a']}",
    ),
    (
        "lines named by their legend alone",
        "a, b = plt.plot([1, 2], [[1, 2], [3, 4]]); plt.legend(['first', 'second'])",
        "{'series': [{'name': 'first', 'y': [1, 3]}, {'name': 'second', 'y': [2, 4]}]}",
    ),
    (
        "line after tight_layout and constrained sizes",
        "fig, ax = plt.subplots(figsize=(4, 3), dpi=50); y = rng.normal(size=50); ax.plot(y); fig.tight_layout()",
        "{'width_px': 200, 'height_px': 150, 'series': [{'x': range(50), 'y': y}]}",
    ),
    ("gaps", "plt.plot([1, 2, 3, 4], [1, np.nan, np.inf, 4])", "{'series': [{'y': [1, None, None, 4]}]}"),
    ("masked array", "plt.plot(np.ma.masked_greater([1.5, 2, 9], 5))", "{'series': [{'x': [0, 1, 2], 'y': [1.5, 2, None]}]}"),
    ("numpy types", "plt.plot(np.float32([0.1, 2]), np.int8([1, 2]))", "{'series': [{'x': np.float32([0.1, 2]), 'y': [1, 2]}]}"),
    (
        "log axes",
        "x = 10.0 ** rng.uniform(-3, 3, 20); plt.loglog(x, x**2)",
        "{'x': {'scale': 'log'}, 'y': {'scale': 'log'}, 'series': [{'x': x, 'y': x**2}]}",
    ),
    ("symlog", "plt.plot([-5, 5]); plt.yscale('symlog')", "{'y': {'scale': 'symlog'}}"),
    ("inverted axis", "plt.plot([1, 2]); plt.gca().invert_yaxis()", "{'y': {'inverted': True}, 'series': [{'y': [1, 2]}]}"),
    ("limits", "plt.plot([1, 2]); plt.xlim(-1, 3); plt.ylim(5, 0.5)", "{'x': {'limits': [-1, 3]}, 'y': {'limits': [5, 0.5]}}"),
    (
        "categories",
        "plt.plot(['low', 'mid', 'high'], [1, 3, 2])",
        "{'x': {'scale': 'category', 'ticks': ['low', 'mid', 'high']}, 'series': [{'x': ['low', 'mid', 'high'], 'y': [1, 3, 2]}]}",
    ),
    (
        "datetimes",
        "import datetime as dt; plt.plot([dt.datetime(2024, 1, 1, 12), dt.datetime(2024, 2, 1, 0, 0, 0, 250)], [1, 2])",
        "{'x': {'scale': 'date'}, 'series': [{'x': ['2024-01-01T12:00:00.000000', '2024-02-01T00:00:00.000250']}]}",
    ),
    (
        "dates",
        "plt.plot(pd.date_range('2024-01-30', periods=3), [1, 2, 3])",
        "{'x': {'scale': 'date'}, 'series': [{'x': ['2024-01-30T00:00:00', '2024-01-31T00:00:00', '2024-02-01T00:00:00']}]}",
    ),
    (
        "dates with a time zone",
        "plt.plot(pd.date_range('2024-07-01', periods=2, tz='Europe/Berlin'), [1, 2])",
        "{'series': [{'x': ['2024-07-01T00:00:00+02:00', '2024-07-02T00:00:00+02:00']}]}",
    ),
    ("datetime64", "plt.plot(np.array(['2020-02-29', 'NaT'], 'M8[D]'), [1, 2])", "{'series': [{'x': ['2020-02-29T00:00:00', None]}]}"),
    (
        "lines of reference",
        "plt.plot([1, 2]); plt.axhline(1.5, label='mean'); plt.axvline(0.5); plt.axvspan(0.2, 0.4); plt.axline((0, 0), slope=2)",
        "{'type': 'line', 'series': [{'type': 'line'}, {'type': 'reference_line', 'name': 'mean', 'orientation': 'horizontal', 'y': [1.5]},"
        " {'orientation': 'vertical', 'x': [0.5]}, {'type': 'reference_band', 'x': [0.2, 0.4]}, {'slope': 2}]}",
    ),
    (
        "a line through a point is no error bar",
        "plt.plot([1, 2, 3], [1, 2, 3]); plt.plot([2, 2], [0, 5])",
        "{'type': 'line', 'series': [{'y': [1, 2, 3]}, {'x': [2, 2], 'y': [0, 5]}]}",
    ),
    ("markers alone", "plt.plot([1, 2], [3, 4], 'o')", "{'type': 'scatter', 'series': [{'type': 'scatter', 'x': [1, 2], 'y': [3, 4]}]}"),
    (
        "scatter with sizes and colours",
        "c = rng.random(4); plt.scatter([1, 2, 3, 4], [5, 6, 7, 8], s=[10, 20, 30, 40], c=c); plt.colorbar(label='Depth (m)')",
        "{'type': 'scatter', 'color': {'label': 'Depth (m)', 'unit': 'm', 'limits': [c.min(), c.max()]},"
        " 'series': [{'x': [1, 2, 3, 4], 'y': [5, 6, 7, 8], 'sizes': [10, 20, 30, 40], 'color_values': c}]}",
    ),
    ("one point", "plt.scatter([1], [2.5])", "{'type': 'scatter', 'series': [{'x': [1], 'y': [2.5]}]}"),
    (
        "scatter with named colours",
        "plt.scatter([1, 2], [3, 4], c=['red', 'blue'], label='s')",
        "{'series': [{'name': 's', 'colors': ['#ff0000', '#0000ff']}]}",
    ),
    (
        "bars",
        "plt.bar(['A', 'B', 'C'], [10, 15, 7], yerr=[1.5, 2, 0.8], capsize=5); plt.title('t')",
        "{'type': 'bar', 'title': 't', 'x': {'scale': 'category', 'ticks': ['A', 'B', 'C']}, 'series': [{'type': 'bar',"
        " 'x': ['A', 'B', 'C'],"
        " 'y': [10, 15, 7], 'y_error': {'minus': [1.5, 2, 0.8], 'plus': [1.5, 2, 0.8]}}]}",
    ),
    (
        "bars at numbers keep their places exactly",
        "x = np.array([0.1, 0.2, 0.3]); h = rng.random(3); plt.bar(x, h, width=0.05)",
        "{'series': [{'x': x, 'y': h, 'width': 0.05}]}",
    ),
    ("touching bars are bars", "plt.bar([1, 2, 3], [4, 5, 6], width=1)", "{'type': 'bar', 'series': [{'x': [1, 2, 3], 'y': [4, 5, 6]}]}"),
    (
        "horizontal bars",
        "plt.barh(['A', 'B'], [10, 15.5], xerr=[[1, 2], [3, 4]])",
        "{'y': {'scale': 'category'}, 'series': [{'orientation': 'horizontal', 'y': ['A', 'B'], 'x': [10, 15.5],"
        " 'x_error': {'minus': [1, 2], 'plus': [3, 4]}}]}",
    ),
    (
        "stacked bars",
        "plt.bar(['a', 'b'], [1, 2], label='p'); plt.bar(['a', 'b'], [3, 4], bottom=[1, 2], label='q'); plt.legend()",
        "{'series': [{'name': 'p', 'y': [1, 2]}, {'name': 'q', 'y': [3, 4], 'base': [1, 2]}], 'legend': ['p', 'q']}",
    ),
    (
        "grouped bars",
        "x = np.arange(2); plt.bar(x - 0.2, [1, 2], 0.4, label='p'); plt.bar(x + 0.2, [3, 4], 0.4, label='q'); plt.xticks(x, ['u', 'v'])",
        "{'x': {'scale': 'category', 'ticks': ['u', 'v']}, 'series': [{'x': ['u', 'v'], 'y': [1, 2]}, {'x': ['u', 'v'], 'y': [3, 4]}]}",
    ),
    ("negative bars", "plt.bar(['a', 'b'], [-1, 2.5])", "{'series': [{'y': [-1, 2.5]}]}"),
    ("bars of several colours", "plt.bar(['a', 'b'], [1, 2], color=['r', 'b'])", "{'series': [{'colors': ['#ff0000', '#0000ff']}]}"),
    (
        "bars over dates",
        "plt.bar(pd.to_datetime(['2024-01-01', '2024-01-02']), [1, 2])",
        "{'type': 'bar', 'series': [{'x': ['2024-01-01T00:00:00', '2024-01-02T00:00:00'], 'y': [1, 2]}]}",
    ),
    ("one bar", "plt.bar(['only'], [3])", "{'type': 'bar', 'series': [{'x': ['only'], 'y': [3]}]}"),
    (
        "broken bars",
        "plt.broken_barh([(1, 2), (5, 3)], (0, 1))",
        "{'type': 'bar', 'series': [{'orientation': 'horizontal', 'base': [1, 5], 'x': [2, 3], 'y': [0.5, 0.5]}]}",
    ),
    (
        "histogram",
        "data = rng.normal(size=500); n, edges, _ = plt.hist(data, bins=17)",
        "{'type': 'histogram', 'series': [{'bin_edges': edges, 'counts': n}]}",
    ),
    (
        "density",
        "n, edges, _ = plt.hist(rng.normal(size=90), bins=[-4, -1, 0, 5], density=True)",
        "{'series': [{'bin_edges': [-4, -1, 0, 5], 'counts': n, 'density': True}]}",
    ),
    (
        "histograms beside each other",
        "n, edges, _ = plt.hist([[1, 2, 2, 3], [1, 1, 3]], bins=3, label=['p', 'q']); plt.legend()",
        "{'type': 'histogram', 'series': [{'name': 'p', 'bin_edges': edges, 'counts': n[0]}, {'name': 'q', 'counts': n[1]}]}",
    ),
    (
        "stacked histograms",
        "plt.hist([[1, 2, 2, 3], [1, 1, 3]], bins=[1, 2, 3], stacked=True)",
        "{'series': [{'counts': [1, 3]}, {'counts': [2, 1], 'base': [1, 3]}]}",
    ),
    (
        "histogram drawn as steps",
        "n, edges, _ = plt.hist([1, 2, 2, 3], bins=3, histtype='stepfilled', label='h')",
        "{'type': 'histogram', 'series': [{'name': 'h', 'bin_edges': edges, 'counts': n}]}",
    ),
    (
        "horizontal histogram",
        "plt.hist([1, 2, 2, 3], bins=2, orientation='horizontal')",
        "{'series': [{'orientation': 'horizontal', 'bin_edges': [1, 2, 3], 'counts': [1, 3]}]}",
    ),
    (
        "stairs",
        "plt.stairs([1, 3, 2], [0, 1, 2, 4])",
        "{'type': 'step', 'series': [{'bin_edges': [0, 1, 2, 4], 'counts': [1, 3, 2]}]}",
    ),
    (
        "boxes",
        "plt.boxplot([[1, 2, 3, 4, 10], [2, 3, 4]], tick_labels=['a', 'b'])",
        "{'type': 'box', 'x': {'scale': 'category', 'ticks': ['a', 'b']}, 'series': [{'boxes': [{'label': 'a', 'min': 1, 'q1': 2,"
        " 'median': 3, 'q3': 4, 'max': 4, 'outliers': [10]}, {'label': 'b', 'min': 2, 'q1': 2.5, 'median': 3, 'q3': 3.5, 'max': 4,"
        " 'outliers': []}]}]}",
    ),
    (
        "horizontal filled boxes",
        "plt.boxplot([[1, 2, 3]], orientation='horizontal', patch_artist=True)",
        "{'type': 'box', 'series': [{'orientation': 'horizontal', 'boxes': [{'median': 2, 'q1': 1.5}]}]}",
    ),
    (
        "violins",
        "parts = plt.violinplot([[1, 2, 3, 4], [2, 3, 5]], showmedians=True)",
        "{'type': 'violin', 'series': [{'violins': [{'min': 1, 'max': 4, 'median': 2.5, 'mean': 2.5}, {'min': 2, 'max': 5,"
        " 'median': 3}]}]}",
    ),
    (
        "pie",
        "plt.pie([3, 1], labels=['x', 'y'], explode=[0, 0.1], autopct='%d%%')",
        "{'type': 'pie', 'series': [{'labels': ['x', 'y'], 'values': [3, 1], 'fractions': [0.75, 0.25], 'explode': [0, 0.1]}]}",
    ),
    (
        "doughnut",
        "plt.pie([0.1, 0.3], labels=['x', 'y'], wedgeprops={'width': 0.4})",
        "{'series': [{'values': [0.1, 0.3], 'hole': 0.6}]}",
    ),
    (
        "image of numbers",
        "z = rng.random((3, 4)); plt.imshow(z, vmin=0, vmax=1); plt.colorbar(label='T (K)')",
        "{'type': 'heatmap', 'color': {'label': 'T (K)', 'unit': 'K', 'limits': [0, 1], 'map': 'viridis'}, 'y': {'inverted': True},"
        " 'series': [{'z': z, 'x': [0, 1, 2, 3], 'y': [0, 1, 2]}]}",
    ),
    (
        "labelled matrix",
        "plt.imshow([[1, 2], [3, 4]]); plt.xticks([0, 1], ['c', 'd']); plt.yticks([0, 1], ['r', 's'])",
        "{'series': [{'z': [[1, 2], [3, 4]], 'x': ['c', 'd'], 'y': ['r', 's']}]}",
    ),
    (
        "image from below with an extent",
        "plt.imshow([[1, 2], [3, 4]], origin='lower', extent=(0, 2, 10, 30))",
        "{'series': [{'x': [0.5, 1.5], 'y': [15, 25], 'z': [[1, 2], [3, 4]]}]}",
    ),
    ("picture", "plt.imshow(np.zeros((5, 7, 3)))", "{'type': 'image', 'series': [{'height': 5, 'width': 7, 'channels': 3}]}"),
    (
        "mesh with a logarithmic colour scale",
        "from matplotlib.colors import LogNorm\nz = rng.random((2, 3)) + 1; plt.pcolormesh([0, 1, 2, 4], [0, 1, 3], z, norm=LogNorm(1, 2))",
        "{'type': 'heatmap', 'color': {'scale': 'log', 'limits': [1, 2]}, 'series': [{'z': z, 'x_edges': [0, 1, 2, 4],"
        " 'y_edges': [0, 1, 3]}]}",
    ),
    (
        "histogram of two variables",
        "h, xe, ye, _ = plt.hist2d(rng.random(99), rng.random(99), bins=(3, 4))",
        "{'type': 'heatmap', 'series': [{'z': h.T, 'x_edges': xe, 'y_edges': ye}]}",
    ),
    (
        "hexagons",
        "hexagons = plt.hexbin(rng.random(99), rng.random(99), gridsize=5)",
        "{'type': 'hexbin', 'series': [{'x': hexagons.get_offsets()[:, 0], 'values': hexagons.get_array()}]}",
    ),
    (
        "filled contours",
        "x, y = np.linspace(0, 1, 4), np.linspace(2, 3, 3); z = rng.random((3, 4)); c = plt.contourf(x, y, z, levels=5)",
        "{'type': 'contour', 'series': [{'filled': True, 'levels': c.levels, 'x': x, 'y': y, 'z': z}]}",
    ),
    (
        "contours of a grid",
        "x, y = np.meshgrid(np.arange(4.0), np.arange(3.0)); plt.contour(x, y, x + y, levels=[1, 2.5])",
        "{'series': [{'filled': False, 'levels': [1, 2.5], 'x': [0, 1, 2, 3], 'y': [0, 1, 2], 'z': x + y}]}",
    ),
    (
        "error bars",
        "plt.errorbar([1, 2, 3], [4, 5, 6], yerr=0.1, xerr=[[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]], fmt='o', label='m')",
        "{'type': 'errorbar', 'series': [{'name': 'm', 'x': [1, 2, 3], 'y': [4, 5, 6], 'y_error': {'minus': [0.1] * 3, 'plus': [0.1] * 3},"
        " 'x_error': {'minus': [0.1, 0.2, 0.3], 'plus': [0.3, 0.2, 0.1]}}]}",
    ),
    (
        "error bars at some points",
        "plt.errorbar([1, 2, 3], [4, 5, 6], yerr=[1, 2, 3], errorevery=2)",
        "{'series': [{'y': [4, 5, 6], 'y_error': {'minus': [1, None, 3], 'plus': [1, None, 3]}}]}",
    ),
    (
        "error bars over bars drawn before",
        "plt.bar([0, 1], [3, 4]); plt.errorbar([0, 1], [3, 4], yerr=[0.5, 0.25], fmt='none')",
        "{'type': 'bar', 'series': [{'y': [3, 4], 'y_error': {'minus': [0.5, 0.25], 'plus': [0.5, 0.25]}}]}",
    ),
    (
        "band around a line",
        "y = np.array([1, 2, 4.5]); plt.plot([1, 2, 3], y); plt.fill_between([1, 2, 3], y - 0.5, y + 0.5, alpha=0.2)",
        "{'type': 'line', 'series': [{'y': y, 'band': {'low': y - 0.5, 'high': y + 0.5}}]}",
    ),
    (
        "area",
        "plt.fill_between([1, 2, 3], [1, 2, 3])",
        "{'type': 'area', 'series': [{'x': [1, 2, 3], 'y': [1, 2, 3], 'y2': [0, 0, 0]}]}",
    ),
    (
        "area where",
        "x = np.arange(5); plt.fill_between(x, [1, 1, 1, 1, 1], [2, 2, 0, 3, 4], where=[True, True, False, True, True])",
        "{'series': [{'x': [0, 1, None, 3, 4], 'y': [2, 2, None, 3, 4], 'y2': [1, 1, None, 1, 1]}]}",
    ),
    (
        "area in steps",
        "plt.fill_between([1, 2, 3], [1, 4, 2], step='post')",
        "{'series': [{'where': 'post', 'x': [1, 2, 3], 'y': [1, 4, 2]}]}",
    ),
    (
        "stacked areas",
        "plt.stackplot([1, 2], [0.1, 0.2], [0.3, 0.4], labels=['a', 'b']); plt.legend()",
        "{'type': 'area', 'series': [{'name': 'a', 'y': [0.1, 0.2]}, {'name': 'b', 'y': [0.3, 0.4], 'base': [0.1, 0.2]}]}",
    ),
    (
        "stems",
        "plt.stem([1, 2, 3], [1, -2, 3])",
        "{'type': 'stem', 'series': [{'x': [1, 2, 3], 'y': [1, -2, 3]}]}",
    ),
    ("steps", "plt.step([1, 2], [3, 4], where='mid')", "{'type': 'step', 'series': [{'x': [1, 2], 'y': [3, 4], 'where': 'mid'}]}"),
    ("distribution function", "plt.ecdf([3, 1, 2])", "{'type': 'step', 'series': [{'x': [1, 1, 2, 3]}]}"),
    (
        "arrows",
        "plt.quiver([0, 1], [0, 1], [1, 2], [3, 4])",
        "{'type': 'quiver', 'series': [{'x': [0, 1], 'y': [0, 1], 'u': [1, 2], 'v': [3, 4]}]}",
    ),
    ("events", "plt.eventplot([1, 2.5, 4])", "{'type': 'event', 'series': [{'x': [1, 2.5, 4]}]}"),
    ("segments", "plt.vlines([1, 2], 0, [3, 4])", "{'type': 'segments', 'series': [{'x': [1, 1, None, 2, 2], 'y': [0, 3, None, 0, 4]}]}"),
    ("polygon", "plt.fill([0, 1, 1], [0, 0, 2])", "{'type': 'polygon', 'series': [{'x': [0, 1, 1, 0], 'y': [0, 0, 2, 0]}]}"),
    ("mixed", "plt.bar([0, 1], [1, 2]); plt.plot([0, 1], [2, 3])", "{'type': 'mixed', 'series': [{'type': 'bar'}, {'type': 'line'}]}"),
    ("hidden artists", "a, b = plt.plot([1, 2], [[1, 2], [3, 4]]); a.set_visible(False)", "{'series': [{'y': [2, 4]}]}"),
    ("changed data", "a, = plt.plot([1, 2]); a.set_data([5, 6], [7, 8])", "{'series': [{'x': [5, 6], 'y': [7, 8]}]}"),
    (
        "twin axes",
        "fig, ax = plt.subplots(); right = ax.twinx(); ax.plot([1, 2]); right.bar([0, 1], [3, 4]); ax.set_xlabel('t [s]');"
        " right.set_ylabel('rain (mm)')",
        "{'type': 'multi', 'charts': [{'type': 'line'}, {'type': 'bar', 'twin_of': 0, 'shares': 'x', 'x': {'label': 't [s]', 'unit': 's'},"
        " 'y': {'label': 'rain (mm)', 'side': 'right'}}]}",
    ),
    (
        "subplots",
        "fig, axes = plt.subplots(2, 2); fig.suptitle('S'); [ax.plot([i]) for i, ax in enumerate(axes.flat)]; axes[1, 0].set_title('t')",
        "{'type': 'multi', 'title': 'S', 'charts': [{'position': {'row': 0, 'column': 0}}, {'position': {'row': 0, 'column': 1}},"
        " {'title': 't', 'position': {'row': 1, 'column': 0}, 'series': [{'y': [2]}]}, {'position': {'row': 1, 'column': 1}}]}",
    ),
    (
        "mosaic",
        "fig, axes = plt.subplot_mosaic('AB;AC'); axes['A'].plot([1]); axes['B'].bar(['x'], [2]); axes['C'].scatter([1], [2])",
        "{'charts': [{'type': 'line', 'position': {'name': 'A', 'rows': 2, 'columns': 1}}, {'type': 'bar', 'position': {'name': 'B'}},"
        " {'type': 'scatter'}]}",
    ),
    (
        "inset",
        "fig, ax = plt.subplots(); ax.plot([1, 2]); ax.inset_axes([0.5, 0.5, 0.4, 0.4]).plot([3, 4])",
        "{'charts': [{'series': [{'y': [1, 2]}]}, {'series': [{'y': [3, 4]}]}]}",
    ),
    (
        "figures in a figure",
        "fig = plt.figure(); [part.subplots().plot([i]) for i, part in enumerate(fig.subfigures(1, 2))]",
        "{'charts': [{'position': {'left': 0.0625, 'width': 0.3875}}, {'position': {'left': 0.5625}}]}",
    ),
    ("one title above", "fig, ax = plt.subplots(); ax.plot([1]); fig.suptitle('S'); ax.set_title('t')", "{'title': 't', 'suptitle': 'S'}"),
    (
        "unused subplots",
        "fig, axes = plt.subplots(1, 2); axes[0].plot([1, 2]); axes[1].axis('off')",
        "{'type': 'line', 'series': [{'y': [1, 2]}]}",
    ),
    ("legend of the figure", "fig, ax = plt.subplots(); ax.plot([1, 2], label='a'); fig.legend()", "{'legend': ['a']}"),
    (
        "polar",
        "ax = plt.subplot(projection='polar'); ax.plot([0, 1.5], [1, 2])",
        "{'type': 'line', 'projection': 'polar', 'series': [{'x': [0, 1.5], 'y': [1, 2]}]}",
    ),
    (
        "points in space",
        "ax = plt.subplot(projection='3d'); ax.scatter([1, 2], [3, 4], [5, 6.5]); ax.set_zlabel('depth (m)')",
        "{'type': '3d-scatter', 'z': {'label': 'depth (m)', 'unit': 'm'}, 'series': [{'x': [1, 2], 'y': [3, 4], 'z': [5, 6.5]}]}",
    ),
    (
        "line in space",
        "plt.subplot(projection='3d').plot([1, 2], [3, 4], [5, 6])",
        "{'type': '3d-line', 'series': [{'x': [1, 2], 'y': [3, 4], 'z': [5, 6]}]}",
    ),
    (
        "surface",
        "x, y = np.meshgrid([1, 2, 3], [4, 5]); z = rng.random((2, 3)); plt.subplot(projection='3d').plot_surface(x, y, z)",
        "{'type': '3d-surface', 'series': [{'x': [1, 2, 3], 'y': [4, 5], 'z': z}]}",
    ),
    (
        "bars in space",
        "plt.subplot(projection='3d').bar3d([0, 1], [0, 1], 0, 0.5, 0.5, [2, 3])",
        "{'type': '3d-bar', 'series': [{'x': [0, 1], 'dz': [2, 3]}]}",
    ),
    ("empty axes", "plt.subplots()", "{'type': 'unknown', 'series': []}"),
]

PANDAS = [
    (
        "pandas lines",
        "pd.DataFrame({'a': [1, 2], 'b': [3, 4.5]}).plot(xlabel='n')",
        "{'type': 'line', 'x': {'label': 'n'}, 'series': [{'name': 'a', 'x': [0, 1], 'y': [1, 2]}, {'name': 'b', 'y': [3, 4.5]}]}",
    ),
    (
        "pandas dates with a frequency",
        "pd.Series([1, 2, 3], index=pd.date_range('2024-01-01', periods=3, freq='D')).plot()",
        "{'x': {'scale': 'date'}, 'series': [{'x': ['2024-01-01T00:00:00', '2024-01-02T00:00:00', '2024-01-03T00:00:00']}]}",
    ),
    (
        "pandas dates without one",
        "pd.Series([1, 2], index=pd.DatetimeIndex(['2024-01-01T00:00', '2024-03-05T10:30'])).plot()",
        "{'x': {'scale': 'date'}, 'series': [{'x': ['2024-01-01T00:00:00', '2024-03-05T10:30:00']}]}",
    ),
    (
        "pandas months",
        "pd.Series([1, 2], index=pd.period_range('2024-01', periods=2, freq='M')).plot()",
        "{'series': [{'x': ['2024-01-01T00:00:00', '2024-02-01T00:00:00'], 'y': [1, 2]}]}",
    ),
    (
        "pandas bars",
        "pd.DataFrame({'a': [1, 2], 'b': [3, 4]}, index=['x', 'y']).plot.bar()",
        "{'type': 'bar', 'x': {'scale': 'category', 'ticks': ['x', 'y']}, 'series': [{'name': 'a', 'x': ['x', 'y'], 'y': [1, 2]},"
        " {'name': 'b', 'x': ['x', 'y'], 'y': [3, 4]}]}",
    ),
    (
        "pandas bars of years",
        "pd.Series([1, 2], index=[2020, 2021]).plot.bar()",
        "{'series': [{'x': ['2020', '2021'], 'y': [1, 2]}]}",
    ),
    (
        "pandas stacked horizontal bars",
        "pd.DataFrame({'a': [1, 2], 'b': [3, 4]}, index=['x', 'y']).plot.barh(stacked=True)",
        "{'series': [{'orientation': 'horizontal', 'y': ['x', 'y'], 'x': [1, 2]}, {'x': [3, 4], 'base': [1, 2]}]}",
    ),
    (
        "pandas areas",
        "pd.DataFrame({'a': [1, 2], 'b': [3, 4]}).plot.area()",
        "{'type': 'area', 'series': [{'name': 'a', 'y': [1, 2], 'y2': [0, 0]}, {'name': 'b', 'y': [4, 6], 'y2': [1, 2]}]}",
    ),
    (
        "pandas histogram",
        "pd.Series([1, 2, 2, 3]).plot.hist(bins=2)",
        "{'type': 'histogram', 'series': [{'bin_edges': [1, 2, 3], 'counts': [1, 3]}]}",
    ),
    (
        "pandas boxes",
        "pd.DataFrame({'a': [1, 2, 3], 'b': [2, 4, 6]}).plot.box()",
        "{'type': 'box', 'series': [{'boxes': [{'label': 'a', 'median': 2}, {'label': 'b', 'median': 4, 'q1': 3}]}]}",
    ),
    (
        "pandas pie",
        "pd.Series([1, 3], index=['x', 'y']).plot.pie()",
        "{'type': 'pie', 'series': [{'labels': ['x', 'y'], 'values': [1, 3], 'fractions': [0.25, 0.75]}]}",
    ),
    (
        "pandas scatter",
        "pd.DataFrame({'a': [1, 2], 'b': [3, 4]}).plot.scatter('a', 'b')",
        "{'type': 'scatter', 'x': {'label': 'a'}, 'y': {'label': 'b'}, 'series': [{'x': [1, 2], 'y': [3, 4]}]}",
    ),
    (
        "pandas histograms of columns",
        "pd.DataFrame({'a': [1, 2, 2], 'b': [3, 4, 4]}).hist(bins=2)",
        "{'type': 'multi', 'charts': [{'title': 'a', 'series': [{'counts': [1, 2]}]}, {'title': 'b'}]}",
    ),
    (
        "pandas second axis",
        "pd.DataFrame({'a': [1, 2], 'b': [30, 40]}).plot(secondary_y='b')",
        "{'type': 'multi', 'charts': [{'series': [{'y': [1, 2]}]}, {'twin_of': 0, 'series': [{'y': [30, 40]}]}]}",
    ),
]

_ROWS = "df = pd.DataFrame({'k': list('aabbcc'), 'v': [1, 2, 3, 5, 6, 9.0], 'h': list('pqpqpq'), 'n': [1, 2, 3, 1, 2, 3]})\n"

SEABORN = [
    (
        "seaborn lines",
        _ROWS + "sns.lineplot(df, x='n', y='v', hue='h', errorbar=None)",
        "{'type': 'line', 'x': {'label': 'n'}, 'legend_title': 'h', 'series': [{'name': 'p', 'x': [1, 2, 3], 'y': [1, 6, 3]},"
        " {'name': 'q', 'y': [5, 2, 9]}]}",
    ),
    (
        "seaborn line with its band",
        _ROWS + "sns.lineplot(df, x='n', y='v', errorbar=('pi', 100))",
        "{'type': 'line', 'series': [{'x': [1, 2, 3], 'y': [3, 4, 6], 'band': {'low': [1, 2, 3], 'high': [5, 6, 9]}}]}",
    ),
    (
        "seaborn points",
        _ROWS + "sns.scatterplot(df, x='n', y='v', hue='h')",
        "{'type': 'scatter', 'series': [{'name': 'p', 'x': [1, 3, 2], 'y': [1, 3, 6]}, {'name': 'q', 'x': [2, 1, 3], 'y': [2, 5, 9]}]}",
    ),
    (
        "seaborn bars",
        _ROWS + "sns.barplot(df, x='k', y='v', errorbar=('pi', 100), capsize=0.2)",
        "{'type': 'bar', 'x': {'scale': 'category'}, 'series': [{'x': ['a', 'b', 'c'], 'y': [1.5, 4, 7.5],"
        " 'y_error': {'minus': [0.5, 1, 1.5], 'plus': [0.5, 1, 1.5]}}]}",
    ),
    (
        "seaborn grouped bars",
        _ROWS + "sns.barplot(df, x='v', y='k', hue='h')",
        "{'series': [{'name': 'p', 'orientation': 'horizontal', 'y': ['a', 'b', 'c'], 'x': [1, 3, 6]}, {'name': 'q', 'x': [2, 5, 9]}]}",
    ),
    ("seaborn counts", _ROWS + "sns.countplot(df, x='k')", "{'type': 'bar', 'series': [{'x': ['a', 'b', 'c'], 'y': [2, 2, 2]}]}"),
    (
        "seaborn histogram",
        _ROWS + "sns.histplot(df, x='v', bins=[0, 3, 6, 9])",
        "{'type': 'histogram', 'series': [{'bin_edges': [0, 3, 6, 9], 'counts': [2, 2, 2]}]}",
    ),
    (
        "seaborn boxes",
        _ROWS + "sns.boxplot(df, x='k', y='v', hue='h')",
        "{'type': 'box', 'series': [{'name': 'p', 'boxes': [{'label': 'a', 'median': 1}, {'label': 'b', 'median': 3}, {'label': 'c'}]},"
        " {'name': 'q', 'boxes': [{'median': 2}, {'median': 5}, {'median': 9}]}]}",
    ),
    (
        "seaborn violins",
        _ROWS + "sns.violinplot(df, x='h', y='v')",
        "{'type': 'violin', 'series': [{'violins': [{'label': 'p', 'q1': 2, 'median': 3, 'q3': 4.5, 'min': 1, 'max': 6},"
        " {'label': 'q'}]}]}",
    ),
    (
        "seaborn matrix",
        "sns.heatmap(pd.DataFrame([[1, 2], [3, 4.5]], index=['r', 's'], columns=['c', 'd']), annot=True, cbar_kws={'label': 'n (kg)'})",
        "{'type': 'heatmap', 'color': {'label': 'n (kg)', 'unit': 'kg', 'limits': [1, 4.5]},"
        " 'series': [{'x': ['c', 'd'], 'y': ['r', 's'], 'z': [[1, 2], [3, 4.5]]}]}",
    ),
    (
        "seaborn regression",
        _ROWS + "sns.regplot(df, x='n', y='v', n_boot=10)",
        "{'type': 'mixed', 'series': [{'type': 'scatter', 'x': [1, 2, 3, 1, 2, 3], 'y': [1, 2, 3, 5, 6, 9]}, {'type': 'line',"
        " 'band': {}}]}",
    ),
    (
        "seaborn strips",
        _ROWS + "sns.stripplot(df, x='k', y='v', hue='h')",
        "{'type': 'scatter', 'series': [{'name': 'p', 'x': ['a', 'b', 'c'], 'y': [1, 3, 6]}, {'name': 'q', 'y': [2, 5, 9]}]}",
    ),
    (
        "seaborn means",
        _ROWS + "sns.pointplot(df, x='k', y='v', errorbar=('pi', 100))",
        "{'type': 'line', 'series': [{'x': ['a', 'b', 'c'], 'y': [1.5, 4, 7.5], 'y_error': {'minus': [0.5, 1, 1.5],"
        " 'plus': [0.5, 1, 1.5]}}]}",
    ),
    (
        "seaborn facets",
        _ROWS + "sns.relplot(df, x='n', y='v', col='h')",
        "{'type': 'multi', 'charts': [{'title': 'h = p', 'series': [{'y': [1, 3, 6]}]}, {'title': 'h = q', 'series': [{'y': [2, 5, 9]}]}]}",
    ),
    (
        "seaborn pairs",
        _ROWS + "sns.pairplot(df[['v', 'n']])",
        "{'type': 'multi', 'charts': [{'type': 'scatter'}, {'type': 'scatter'}, {'type': 'histogram'}, {'type': 'histogram'}]}",
    ),
]

PLOTLY = [
    (
        "plotly lines",
        _ROWS + "fig = px.line(df, x='n', y='v', color='h', title='T', labels={'v': 'V (m)'}, width=400)",
        "{'type': 'line', 'title': 'T', 'library': 'plotly', 'width_px': 400, 'y': {'label': 'V (m)', 'unit': 'm'}, 'legend': ['p', 'q'],"
        " 'series': [{'name': 'p', 'x': [1, 3, 2], 'y': [1, 3, 6]}, {'name': 'q', 'x': [2, 1, 3], 'y': [2, 5, 9]}]}",
    ),
    (
        "plotly dates",
        "fig = px.line(x=pd.date_range('2024-01-01', periods=2), y=[1, 2])",
        "{'x': {'scale': 'date'}, 'series': [{'x': ['2024-01-01T00:00:00', '2024-01-02T00:00:00']}]}",
    ),
    (
        "plotly points",
        _ROWS + "fig = px.scatter(df, x='n', y='v', size='n', color='v', log_y=True, range_y=[1, 10])",
        "{'type': 'scatter', 'y': {'scale': 'log', 'limits': [1, 10]}, 'color': {'label': 'v', 'limits': [1, 9]},"
        " 'series': [{'x': [1, 2, 3, 1, 2, 3], 'y': [1, 2, 3, 5, 6, 9], 'sizes': [1, 2, 3, 1, 2, 3], 'color_values': [1, 2, 3, 5, 6, 9]}]}",
    ),
    (
        "plotly bars",
        _ROWS + "fig = px.bar(df, x='v', y='k', orientation='h', error_x='n')",
        "{'type': 'bar', 'y': {'scale': 'category', 'ticks': ['a', 'b', 'c']}, 'series': [{'orientation': 'horizontal',"
        " 'x': [1, 2, 3, 5, 6, 9], 'x_error': {'plus': [1, 2, 3, 1, 2, 3]}}]}",
    ),
    (
        "plotly histogram",
        _ROWS + "fig = px.histogram(df, x='v', nbins=3)",
        "{'type': 'histogram', 'series': [{'x': [1, 2, 3, 5, 6, 9], 'aggregate': 'count', 'bins': 3}]}",
    ),
    (
        "plotly boxes",
        _ROWS + "fig = px.box(df, x='k', y='v')",
        "{'type': 'box', 'series': [{'x': list('aabbcc'), 'y': [1, 2, 3, 5, 6, 9], 'aggregate': 'quartiles'}]}",
    ),
    (
        "plotly boxes of given quartiles",
        "fig = go.Figure(go.Box(x=['a'], q1=[1], median=[2], q3=[3], lowerfence=[0], upperfence=[4]))",
        "{'series': [{'boxes': [{'label': 'a', 'min': 0, 'q1': 1, 'median': 2, 'q3': 3, 'max': 4}]}]}",
    ),
    (
        "plotly pie",
        _ROWS + "fig = px.pie(df, names='h', values='n', hole=0.5)",
        "{'type': 'pie', 'series': [{'labels': ['p', 'q'], 'values': [6, 6], 'fractions': [0.5, 0.5], 'hole': 0.5}]}",
    ),
    (
        "plotly matrix",
        "z = rng.random((2, 3)); fig = px.imshow(z, x=['a', 'b', 'c'], y=['r', 's'], labels={'color': 'T (K)'})",
        "{'type': 'heatmap', 'color': {'label': 'T (K)', 'unit': 'K'}, 'series': [{'z': z, 'x': ['a', 'b', 'c'], 'y': ['r', 's']}]}",
    ),
    (
        "plotly facets",
        _ROWS + "fig = px.scatter(df, x='n', y='v', facet_col='h')",
        "{'type': 'multi', 'charts': [{'title': 'h=p', 'position': {'left': 0}}, {'title': 'h=q', 'series': [{'y': [2, 5, 9]}]}]}",
    ),
    (
        "plotly two scales",
        "from plotly.subplots import make_subplots\nfig = make_subplots(specs=[[{'secondary_y': True}]]); fig.add_bar(x=['a'], y=[1]);"
        " fig.add_scatter(x=['a'], y=[3], secondary_y=True)",
        "{'charts': [{'type': 'bar'}, {'type': 'line', 'twin_of': 0, 'y': {'side': 'right'}}]}",
    ),
    (
        "plotly traces",
        "fig = go.Figure([go.Scatter(y=[1, 2], mode='lines', line_shape='hv'), go.Scatter(y=[3, 4], fill='tozeroy')])",
        "{'type': 'mixed', 'series': [{'type': 'step', 'where': 'post', 'x': [0, 1], 'y': [1, 2]}, {'type': 'area', 'fill': 'tozeroy'}]}",
    ),
    (
        "plotly surface",
        "fig = go.Figure(go.Surface(z=[[1, 2], [3, 4]]))",
        "{'type': '3d-surface', 'series': [{'z': [[1, 2], [3, 4]]}]}",
    ),
    (
        "plotly candles",
        "fig = go.Figure(go.Candlestick(x=['2024-01-01'], open=[1], high=[2], low=[0], close=[1.5]))",
        "{'type': 'candlestick', 'x': {'scale': 'date'}, 'series': [{'open': [1], 'high': [2], 'low': [0], 'close': [1.5]}]}",
    ),
]

ALTAIR = [
    (
        "altair points",
        _ROWS + "fig = alt.Chart(df, title='T').mark_point().encode(x=alt.X('n', title='N (s)'), y='v', color='h').properties(width=300)",
        "{'type': 'scatter', 'title': 'T', 'library': 'altair', 'width_px': 300, 'x': {'label': 'N (s)', 'unit': 's'},"
        " 'legend': ['p', 'q'],"
        " 'series': [{'name': 'p', 'x': [1, 3, 2], 'y': [1, 3, 6]}, {'name': 'q', 'x': [2, 1, 3], 'y': [2, 5, 9]}]}",
    ),
    (
        "altair line over dates",
        "df = pd.DataFrame({'d': pd.date_range('2024-01-01', periods=2), 'v': [1,"
        " 2.5]}); fig = alt.Chart(df).mark_line().encode(x='d', y='v')",
        "{'type': 'line', 'x': {'scale': 'date'}, 'series': [{'x': ['2024-01-01T00:00:00', '2024-01-02T00:00:00'], 'y': [1, 2.5]}]}",
    ),
    (
        "altair bars of means",
        _ROWS + "fig = alt.Chart(df).mark_bar().encode(x='k', y='mean(v)')",
        "{'type': 'bar', 'x': {'scale': 'category', 'ticks': ['a', 'b', 'c']}, 'y': {'label': 'Mean of v'},"
        " 'series': [{'x': list('aabbcc'), 'y': [1, 2, 3, 5, 6, 9], 'aggregate': 'mean', 'aggregate_of': 'y'}]}",
    ),
    (
        "altair horizontal bars",
        _ROWS + "fig = alt.Chart(df).mark_bar().encode(y='k', x='v')",
        "{'series': [{'orientation': 'horizontal', 'x': [1, 2, 3, 5, 6, 9]}]}",
    ),
    (
        "altair histogram",
        _ROWS + "fig = alt.Chart(df).mark_bar().encode(alt.X('v', bin=True), y='count()')",
        "{'type': 'histogram', 'series': [{'x': [1, 2, 3, 5, 6, 9], 'binned': 'x', 'aggregate': 'count'}]}",
    ),
    (
        "altair matrix",
        _ROWS + "fig = alt.Chart(df).mark_rect().encode(x='k', y='h', color='v')",
        "{'type': 'heatmap', 'color': {'label': 'v'}, 'series': [{'x': ['a', 'b', 'c'], 'y': ['p', 'q'], 'z': [[1, 3, 6], [2, 5, 9]]}]}",
    ),
    (
        "altair arcs",
        "df = pd.DataFrame({'k': ['a', 'b'], 'v': [1, 3]}); fig = alt.Chart(df).mark_arc().encode(theta='v', color='k')",
        "{'type': 'pie', 'series': [{'labels': ['a', 'b'], 'values': [1, 3], 'fractions': [0.25, 0.75]}]}",
    ),
    (
        "altair facets",
        _ROWS + "fig = alt.Chart(df).mark_point().encode(x='n', y='v', column='h')",
        "{'charts': [{'title': 'h = p', 'series': [{'y': [1, 3, 6]}]}, {'title': 'h = q', 'position': {'column': 1}}]}",
    ),
    (
        "altair layers beside a chart",
        _ROWS + "c = alt.Chart(df).mark_line().encode(x='n', y='v'); fig = (c + c.mark_point()) | c",
        "{'type': 'multi', 'charts': [{'type': 'mixed', 'series': [{'type': 'line'}, {'type': 'scatter', 'y': [1, 2, 3, 5, 6, 9]}]},"
        " {'type': 'line', 'position': {'row': 0, 'column': 1}}]}",
    ),
    (
        "altair repeats",
        _ROWS
        + "fig = alt.Chart(df).mark_point().encode(alt.X(alt.repeat('column'), type='quantitative'), y='v').repeat(column=['n', 'v'])",
        "{'charts': [{'x': {'label': 'n'}}, {'x': {'label': 'v'}, 'series': [{'x': [1, 2, 3, 5, 6, 9]}]}]}",
    ),
    (
        "altair transforms",
        _ROWS + "fig = alt.Chart(df).mark_point().encode(x='n', y='v').transform_filter('datum.v > 3')",
        "{'series': [{'y': [1, 2, 3, 5, 6, 9], 'transform': ['filter']}]}",
    ),
]
