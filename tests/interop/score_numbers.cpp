#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "tasks/calibration.h"
#include "tasks/score_curves.h"

/// score_numbers FILE: reads "samples classes", then for each sample its class and the probabilities of all
/// classes. Prints for each class the number of positives, the average precision, and the curves of precision
/// and F1; then the expected calibration error.
int main(int argc, char** argv) {
  using namespace hearth::tasks;
  if (argc != 2) return 2;
  std::ifstream in(argv[1]);
  int64_t samples = 0, classes = 0;
  in >> samples >> classes;
  ClassScores scores(samples, classes);
  Calibration calibration;
  std::vector<float> row(static_cast<size_t>(classes));
  for (int64_t i = 0; i < samples; ++i) {
    int64_t truth = 0;
    in >> truth;
    for (float& probability : row) in >> probability;
    scores.add(row, truth);
    const auto predicted = std::ranges::max_element(row);
    calibration.add(static_cast<double>(*predicted), predicted - row.begin() == truth);
  }
  if (!in) return 2;
  for (const ScoreCurve& curve : scores.trace()) {
    fmt::print("{} {:.17g}", curve.num_positives, curve.average_precision);
    for (const double value : curve.precision_at_recall) fmt::print(" {:.17g}", value);
    for (const double value : curve.f1) fmt::print(" {:.17g}", value);
    fmt::print("\n");
  }
  fmt::print("{:.17g}\n", calibration.expected_error());
  return 0;
}
