//! The picture: nanoseconds per check against number of agents, both
//! logarithmic, as SVG. Nothing is measured here.

use crate::rows::{Figures, PLOTTED, Who};
use std::collections::BTreeMap;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 64.0;
const COLOURS: [&str; 4] = ["#0b6e4f", "#2aa876", "#c8553d", "#3d5a9e"];
/// The least distance between two labels at the ends of lines.
const LABEL_GAP: f64 = 18.0;

/// Maps values to positions on the page.
struct Axes {
    agents_max: f64,
    ns_min: f64,
    ns_max: f64,
}

impl Axes {
    fn x(&self, agents: f64) -> f64 {
        LEFT + agents.log10() / self.agents_max.log10() * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, ns: f64) -> f64 {
        let share = (ns / self.ns_min).log10() / (self.ns_max / self.ns_min).log10();
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }
}

/// Draws the sweep.
#[must_use]
pub fn svg(sweep: &BTreeMap<usize, Figures>) -> String {
    let values: Vec<f64> =
        sweep.values().flat_map(|figures| PLOTTED.iter().filter_map(|(who, _)| figures.get(who).copied())).collect();
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(1.0, f64::max);
    let ticks: Vec<f64> = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0].into();
    let axes = Axes {
        agents_max: sweep.keys().last().map_or(10.0, |agents| *agents as f64),
        ns_min: ticks.iter().copied().rfind(|tick| *tick <= least).unwrap_or(1.0),
        ns_max: ticks.iter().copied().find(|tick| *tick >= most).unwrap_or(5_000.0),
    };
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"system-ui, -apple-system, 'Segoe UI', sans-serif\" font-size=\"13\" fill=\"#333\">\n\
         <title>Nanoseconds per check against number of agents</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fcfcfa\"/>\n\
         <text x=\"{LEFT}\" y=\"28\" font-size=\"17\" font-weight=\"600\">Nanoseconds per check, one thread</text>\n\
         <text x=\"{LEFT}\" y=\"47\" fill=\"#666\">CPU time, random agents with 16-byte ids; both axes logarithmic, lower is better</text>\n"
    );
    grid(&mut text, &axes, sweep, &ticks);
    let mut labels: Vec<(f64, &str, &str)> = Vec::new();
    for ((who, name), colour) in PLOTTED.iter().zip(COLOURS) {
        if let Some(end) = line(&mut text, &axes, sweep, *who, colour) {
            labels.push((end, name, colour));
        }
    }
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut last = f64::NEG_INFINITY;
    for (y, name, colour) in labels {
        let y = y.max(last + LABEL_GAP);
        last = y;
        let x = WIDTH - RIGHT + 14.0;
        let _ =
            writeln!(text, "<text x=\"{x}\" y=\"{:.1}\" fill=\"{colour}\" font-weight=\"600\">{name}</text>", y + 4.0);
    }
    text.push_str("</svg>\n");
    text
}

fn grid(text: &mut String, axes: &Axes, sweep: &BTreeMap<usize, Figures>, ticks: &[f64]) {
    let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
    for ns in ticks.iter().copied().filter(|ns| (axes.ns_min..=axes.ns_max).contains(ns)) {
        let y = axes.y(ns);
        let _ = writeln!(
            text,
            "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#e3e3de\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{ns}</text>",
            LEFT - 10.0,
            y + 4.0
        );
    }
    for agents in sweep.keys() {
        let x = axes.x(*agents as f64);
        let _ = writeln!(
            text,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{:.1}\" stroke=\"#999\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 5.0,
            bottom + 21.0,
            short(*agents)
        );
    }
    let _ = writeln!(
        text,
        "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\" stroke=\"#999\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">agents</text>\
         <text transform=\"translate(22 {:.1}) rotate(-90)\" text-anchor=\"middle\">ns per check</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 18.0,
        (TOP + bottom) / 2.0
    );
}

/// Draws one contestant, and returns the height at which its line ends.
fn line(text: &mut String, axes: &Axes, sweep: &BTreeMap<usize, Figures>, who: Who, colour: &str) -> Option<f64> {
    let points: Vec<(f64, f64)> = sweep
        .iter()
        .filter_map(|(agents, figures)| figures.get(&who).map(|ns| (axes.x(*agents as f64), axes.y(*ns))))
        .collect();
    let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let _ = writeln!(
        text,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\" stroke-linejoin=\"round\"/>",
        path.join(" ")
    );
    for (x, y) in &points {
        let _ = writeln!(text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>");
    }
    points.last().map(|(_, y)| *y)
}

fn short(agents: usize) -> String {
    match agents {
        0..1_000 => agents.to_string(),
        1_000..1_000_000 => format!("{} k", agents / 1_000),
        _ => format!("{} M", agents / 1_000_000),
    }
}
