// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Poisson's equation −Δu = f on the unit square, discretised with the five-point star.

use std::f64::consts::PI;
use std::str::FromStr;

use terrace_store::{Error, Result};

/// How one iteration goes over the grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Every point from the points of the iteration before; quick per iteration.
    Jacobi,
    /// Every point from the newest points; converges in half as many iterations.
    #[default]
    GaussSeidel,
}

impl FromStr for Method {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "jacobi" => Ok(Method::Jacobi),
            "gauss-seidel" => Ok(Method::GaussSeidel),
            _ => Err(Error::invalid("read a method", "jacobi or gauss-seidel is expected")
                .with("value", text)),
        }
    }
}

/// A plate that is heated inside and kept at zero along its edges.
///
/// f(x, y) = 2π² sin(πx) sin(πy), so the solution is u(x, y) = sin(πx) sin(πy).
#[derive(Clone, Debug)]
pub struct Grid {
    dimension: usize,
    /// Row by row, edges included.
    points: Vec<f64>,
    /// h² f / 4 at every point.
    heating: Vec<f64>,
    /// The iteration before; used by Jacobi alone.
    before: Vec<f64>,
}

impl Grid {
    /// A cold plate of `dimension` × `dimension` points, at least 3.
    pub fn new(dimension: usize) -> Self {
        assert!(dimension >= 3, "a grid has an inner point");
        let width = 1.0 / (dimension - 1) as f64;
        let sine: Vec<f64> = (0..dimension).map(|at| (PI * at as f64 * width).sin()).collect();
        let factor = 2.0 * PI * PI * width * width / 4.0;
        let heating = sine.iter().flat_map(|y| sine.iter().map(move |x| factor * x * y)).collect();
        let points = vec![0.0; dimension * dimension];
        Self { dimension, before: points.clone(), points, heating }
    }

    /// Points along one edge.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// Row by row, edges included.
    pub fn points(&self) -> &[f64] {
        &self.points
    }

    /// Improves every inner point once; returns the largest change, the residuum.
    pub fn iterate(&mut self, method: Method) -> f64 {
        match method {
            Method::Jacobi => self.jacobi(),
            Method::GaussSeidel => self.gauss_seidel(),
        }
    }

    fn jacobi(&mut self) -> f64 {
        std::mem::swap(&mut self.points, &mut self.before);
        let n = self.dimension;
        let mut residuum = 0.0_f64;
        for row in 1..n - 1 {
            let above = &self.before[(row - 1) * n..row * n];
            let here = &self.before[row * n..(row + 1) * n];
            let below = &self.before[(row + 1) * n..(row + 2) * n];
            let heating = &self.heating[row * n..(row + 1) * n];
            let new = &mut self.points[row * n..(row + 1) * n];
            for at in 1..n - 1 {
                let star = above[at] + here[at - 1] + here[at + 1] + below[at];
                new[at] = 0.25 * star + heating[at];
                residuum = residuum.max((new[at] - here[at]).abs());
            }
        }
        residuum
    }

    fn gauss_seidel(&mut self) -> f64 {
        let n = self.dimension;
        let mut residuum = 0.0_f64;
        for row in 1..n - 1 {
            let (above, rest) = self.points[(row - 1) * n..(row + 2) * n].split_at_mut(n);
            let (here, below) = rest.split_at_mut(n);
            let heating = &self.heating[row * n..(row + 1) * n];
            for at in 1..n - 1 {
                let star = above[at] + here[at - 1] + here[at + 1] + below[at];
                let new = 0.25 * star + heating[at];
                residuum = residuum.max((new - here[at]).abs());
                here[at] = new;
            }
        }
        residuum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_methods_reach_the_known_solution() {
        const DIMENSION: usize = 17;
        for method in [Method::Jacobi, Method::GaussSeidel] {
            let mut grid = Grid::new(DIMENSION);
            let iterations = (0..5000).take_while(|_| grid.iterate(method) > 1e-9).count();
            assert!(iterations < 5000, "{method:?} does not converge");
            // u(1/2, 1/2) = 1, up to the discretisation error of order h².
            let middle = grid.points()[DIMENSION / 2 * DIMENSION + DIMENSION / 2];
            assert!((middle - 1.0).abs() < 0.01, "{method:?} found {middle}");
        }
    }

    #[test]
    fn gauss_seidel_needs_fewer_iterations() {
        let needed = |method| {
            let mut grid = Grid::new(17);
            (0..5000).take_while(|_| grid.iterate(method) > 1e-6).count()
        };
        assert!(needed(Method::GaussSeidel) * 3 < needed(Method::Jacobi) * 2);
    }
}
