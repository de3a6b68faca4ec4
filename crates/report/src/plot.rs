// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plots with axes, as SVG that is part of a page: narrow enough for a phone, and distinguished by
//! darkness and dashes where there are no colours.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{escape, push};

/// All plots are as wide; a page sets them in columns.
const WIDTH: u32 = 480;

/// Of a text; the style of the page says so, too.
const FONT: (&str, i32) = ("sans-serif", 16);

const INK: RGBColor = RGBColor(0x1a, 0x20, 0x27);
const GRID: RGBColor = RGBColor(0xd8, 0xde, 0xe5);
const BAR: RGBColor = RGBColor(0x2b, 0x7a, 0x78);

/// Colours of tiers, each paler than the one before, so that they differ in grey.
const TIERS: [RGBColor; 5] = [
    RGBColor(0x0d, 0x3f, 0x86),
    RGBColor(0xe8, 0x91, 0x2d),
    RGBColor(0xa9, 0xd3, 0xa2),
    RGBColor(0xd9, 0xcb, 0xee),
    RGBColor(0x7a, 0x4a, 0x2a),
];

/// Pixels that a line of the tier of this number is drawn and not drawn for.
const DASHES: [(i32, i32); 5] = [(1, 0), (8, 4), (2, 3), (12, 6), (5, 2)];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A bar, with what is written above it.
#[derive(Clone, Debug)]
pub struct Bar {
    /// What it stands for.
    pub name: String,
    /// How long it is.
    pub value: f64,
    /// Its value in words.
    pub text: String,
    /// Whether it is only a bound, which is drawn hollow.
    pub is_bound: bool,
}

/// A point with its name.
#[derive(Clone, Debug)]
pub struct Point {
    /// What it stands for.
    pub name: String,
    /// To the right.
    pub x: f64,
    /// Up.
    pub y: f64,
    /// Whether it is only a bound, which is drawn hollow.
    pub is_bound: bool,
}

/// An axis: what it is called, where it begins and ends, and how its values are written.
pub struct Axis<'a> {
    /// What it shows, with the unit.
    pub name: &'a str,
    /// The value at its beginning.
    pub start: f64,
    /// The value at its end.
    pub end: f64,
    /// Writes a value.
    pub show: &'a dyn Fn(f64) -> String,
}

/// Bars below each other, each with its name above it.
pub fn bars(title: &str, bars: &[Bar]) -> String {
    const ROW: i32 = 38;
    const NAME_MAX: usize = 38;
    let end = bars.iter().map(|bar| bar.value).fold(0.0, f64::max);
    let width = f64::from(WIDTH - 4) / if end > 0.0 { end } else { 1.0 };
    plot(title, bars.len() as u32 * ROW as u32 + 4, |area| {
        for (index, bar) in bars.iter().enumerate() {
            let top = index as i32 * ROW;
            write(area, &cut(&bar.name, NAME_MAX), (2, top + 16), HPos::Left)?;
            write(area, &bar.text, (WIDTH as i32 - 2, top + 16), HPos::Right)?;
            // What is there can be seen.
            let right = 2 + ((bar.value * width) as i32).max(1);
            let corners = [(2, top + 20), (right, top + 34)];
            let style = if bar.is_bound { INK.stroke_width(1) } else { BAR.filled() };
            area.draw(&Rectangle::new(corners, style))?;
        }
        Ok(())
    })
}

/// Points, and a line through those that are no bounds and that no other one of these beats in both
/// directions: less is better.
pub fn front(title: &str, x: &Axis<'_>, y: &Axis<'_>, points: &[Point]) -> String {
    const NAMES: i32 = 176;
    const NAME_MAX: usize = 21;
    const LINE: i32 = 18;
    let height = 300.max(points.len() as u32 * LINE as u32 + 60);
    plot(title, height, |area| {
        let (left, right) = area.split_horizontally(WIDTH as i32 - NAMES);
        let mut chart = axes(&left, x, y)?;
        let able: Vec<_> = points.iter().filter(|point| !point.is_bound).collect();
        let mut best: Vec<_> = able.iter().filter(|point| is_best(point, &able)).collect();
        best.sort_by(|a, b| a.x.total_cmp(&b.x));
        chart.draw_series(DashedLineSeries::new(
            best.iter().map(|point| (point.x, point.y)),
            4,
            3,
            INK.stroke_width(1),
        ))?;
        let marks = points.iter().map(|point| {
            let style = if point.is_bound { INK.stroke_width(1) } else { BAR.filled() };
            Circle::new((point.x, point.y), 5, style)
        });
        chart.draw_series(marks)?;
        // Names beside the plot, as high as their points, but not on one another.
        let mut places: Vec<_> =
            points.iter().map(|point| (chart.backend_coord(&(point.x, point.y)), point)).collect();
        places.sort_by_key(|((x, y), _)| (*y, *x));
        let mut free = LINE;
        let count = places.len() as i32;
        for (index, ((at_x, at_y), point)) in places.into_iter().enumerate() {
            let last = height as i32 - 8 - (count - 1 - index as i32) * LINE;
            let line = (at_y + 5).max(free).min(last);
            free = line + LINE;
            let edge = WIDTH as i32 - NAMES;
            let path = vec![(at_x + 5, at_y), (edge + 2, line - 5)];
            area.draw(&PathElement::new(path, GRID.stroke_width(1)))?;
            write(&right, &cut(&point.name, NAME_MAX), (6, line), HPos::Left)?;
        }
        Ok(())
    })
}

/// A line for each tier, by its number.
pub fn lines(
    title: &str,
    x: &Axis<'_>,
    y: &Axis<'_>,
    lines: &[(usize, Vec<(f64, f64)>)],
) -> String {
    plot(title, 220, |area| {
        let mut chart = axes(area, x, y)?;
        for (tier, points) in lines {
            draw_line(&mut chart, points, *tier)?;
        }
        Ok(())
    })
}

/// Layers on one another, that of the first tier lowest, each a series of steps; and a line over them.
pub fn stack(
    title: &str,
    x: &Axis<'_>,
    y: &Axis<'_>,
    layers: &[(usize, Vec<f64>)],
    over: &[f64],
    step: f64,
) -> String {
    let steps = |values: &[f64]| -> Vec<(f64, f64)> {
        let pair = |(index, value): (usize, &f64)| {
            let at = index as f64 * step;
            [(at, *value), ((at + step).min(x.end), *value)]
        };
        values.iter().enumerate().flat_map(pair).collect()
    };
    let mut sums = Vec::new();
    let mut below = vec![0.0; over.len()];
    for (tier, layer) in layers {
        below.iter_mut().zip(layer).for_each(|(below, value)| *below += value);
        sums.push((*tier, below.clone()));
    }
    plot(title, 220, |area| {
        let mut chart = axes(area, x, y)?;
        // The highest first, so that each lower one covers its part of it.
        for (tier, sum) in sums.iter().rev() {
            let colour = TIERS[tier % TIERS.len()];
            let series = AreaSeries::new(steps(sum), 0.0, colour.filled());
            chart.draw_series(series)?;
        }
        chart.draw_series(LineSeries::new(steps(over), INK.stroke_width(1)))?;
        Ok(())
    })
}

/// How a tier looks in plots: for the key beside them.
pub fn swatch(tier: usize) -> String {
    let RGBColor(red, green, blue) = TIERS[tier % TIERS.len()];
    let (on, off) = DASHES[tier % DASHES.len()];
    let dashes = if off > 0 { format!(" stroke-dasharray=\"{on} {off}\"") } else { String::new() };
    format!(
        "<svg viewBox=\"0 0 40 14\" aria-hidden=\"true\">\
         <rect x=\"0\" y=\"1\" width=\"14\" height=\"12\" fill=\"#{red:02x}{green:02x}{blue:02x}\"/>\
         <path d=\"M18 7H40\" fill=\"none\" stroke=\"#{red:02x}{green:02x}{blue:02x}\" \
         stroke-width=\"2\"{dashes}/></svg>"
    )
}

/// Where drawing can fail: never, because it is into memory.
type Drawn<T = ()> = Result<T, DrawingAreaErrorKind<std::io::Error>>;

/// A plot of this height, drawn by `draw`.
fn plot(title: &str, height: u32, draw: impl FnOnce(&Area<'_>) -> Drawn) -> String {
    let mut drawn = String::new();
    {
        let area = SVGBackend::with_string(&mut drawn, (WIDTH, height)).into_drawing_area();
        draw(&area).and_then(|()| area.present()).expect("a string takes everything");
    }
    // As a part of a page it grows with its column, and needs no namespace.
    let (_, elements) = drawn.split_once('>').expect("a drawing begins with its element");
    let mut svg = String::with_capacity(drawn.len());
    push(
        &mut svg,
        format_args!(
            "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">",
            escape(title)
        ),
    );
    svg.push_str(elements);
    svg
}

type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

fn axes<'a, 'b>(area: &'a Area<'b>, x: &Axis<'_>, y: &Axis<'_>) -> Drawn<Chart<'a, 'b>> {
    let range = |axis: &Axis<'_>| match axis.end > axis.start {
        true => axis.start..axis.end,
        false => axis.start..axis.start + 1.0,
    };
    let mut chart = ChartBuilder::on(area)
        .margin_top(24)
        .margin_right(14)
        .x_label_area_size(42)
        .y_label_area_size(72)
        .build_cartesian_2d(range(x), range(y))?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID.stroke_width(1))
        .axis_style(INK.stroke_width(1))
        .label_style(FONT)
        .x_labels(5)
        .y_labels(5)
        .x_label_formatter(&|value| (x.show)(*value))
        .y_label_formatter(&|value| (y.show)(*value))
        .draw()?;
    let (width, height) = area.dim_in_pixel();
    write(area, y.name, (2, 14), HPos::Left)?;
    write(area, x.name, (width as i32 - 14, height as i32 - 1), HPos::Right)?;
    Ok(chart)
}

fn draw_line(chart: &mut Chart<'_, '_>, points: &[(f64, f64)], tier: usize) -> Drawn {
    let style = TIERS[tier % TIERS.len()].stroke_width(2);
    let points = points.iter().copied();
    match DASHES[tier % DASHES.len()] {
        (_, 0) => drop(chart.draw_series(LineSeries::new(points, style))?),
        (on, off) => drop(chart.draw_series(DashedLineSeries::new(points, on, off, style))?),
    }
    Ok(())
}

fn write(area: &Area<'_>, text: &str, at: (i32, i32), side: HPos) -> Drawn {
    let style = FONT.into_font().color(&INK).pos(Pos::new(side, VPos::Bottom));
    area.draw(&Text::new(text.to_string(), at, style))
}

/// Whether no other point is at least as good in both directions and better in one.
fn is_best(point: &Point, points: &[&Point]) -> bool {
    let beats = |other: &&Point| {
        other.x <= point.x && other.y <= point.y && (other.x < point.x || other.y < point.y)
    };
    !points.iter().any(beats)
}

fn cut(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assert_closed;

    fn point(name: &str, x: f64, y: f64) -> Point {
        Point { name: name.into(), x, y, is_bound: false }
    }

    fn axis<'a>(end: f64, show: &'a dyn Fn(f64) -> String) -> Axis<'a> {
        Axis { name: "<axis>", start: 0.0, end, show }
    }

    #[test]
    fn plots_are_whole_and_escape_what_they_show() {
        let show = |value: f64| format!("{value}");
        let (x, y) = (axis(10.0, &show), axis(4.0, &show));
        let bar = |is_bound| Bar { name: "<b>".into(), value: 2.0, text: "2 s".into(), is_bound };
        let course: Vec<_> = (0..10).map(|at| (f64::from(at), f64::from(at % 4))).collect();
        let values: Vec<_> = course.iter().map(|(_, value)| *value).collect();
        for svg in [
            bars("time", &[bar(true), bar(false)]),
            front("front", &x, &y, &[point("<i>", 1.0, 1.0), point("b", 2.0, 3.0)]),
            lines("fill", &x, &y, &[(0, course.clone()), (1, course.clone())]),
            stack("load", &x, &y, &[(0, values.clone()), (1, values.clone())], &values, 1.0),
            lines("nothing", &axis(0.0, &show), &axis(0.0, &show), &[]),
        ] {
            assert_closed(&svg);
            assert!(svg.starts_with("<svg class=\"plot\"") && svg.ends_with("</svg>\n"), "{svg}");
            assert!(!svg.contains("http") && !svg.contains("<b>") && !svg.contains("<i>"), "{svg}");
        }
    }

    #[test]
    fn what_another_one_beats_is_not_on_the_front() {
        let points = [point("a", 1.0, 3.0), point("b", 2.0, 2.0), point("c", 2.0, 3.0)];
        let points: Vec<_> = points.iter().collect();
        let best: Vec<_> = points.iter().map(|point| is_best(point, &points)).collect();
        assert_eq!(best, [true, true, false]);
    }

    #[test]
    fn a_long_name_is_cut() {
        assert_eq!((cut("lru", 3), cut("lruh", 3)), ("lru".into(), "lr…".into()));
    }
}
