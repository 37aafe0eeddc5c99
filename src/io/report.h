#pragma once

#include <string>
#include <utility>
#include <vector>

#include "io/chart.h"
#include "io/html.h"
#include "io/run_log.h"

namespace hearth::io {

/// An image in PNG format with its true and its predicted class. `probability`: of the predicted class, in
/// [0, 1].
struct SamplePrediction {
  std::string png;  ///< bytes of a PNG file
  std::string truth;
  std::string predicted;
  double probability = 0;
};

/// A row of images with a caption, such as an input image, its label and its prediction.
struct ImageStrip {
  std::vector<std::string> images;  ///< bytes of PNG or JPEG files
  std::string caption;
};

/// A table of the report; cells are plain text.
struct ReportTable {
  std::string title;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
  bool is_sortable = false;  ///< true if a click on a heading sorts the rows
};

/// Charts under a heading.
struct ReportSection {
  std::string title;
  std::string note;                 ///< sentence under the heading, plain text
  std::vector<std::string> charts;  ///< results of unit_chart and bar_chart
};

/// A color and its meaning in a legend.
struct LegendEntry {
  std::string name;
  std::string color;  ///< CSS, "#c08040"
};

/// Consecutive tokens of a row as text: either all of them count in the loss, or none.
struct TextPart {
  std::string text;
  bool is_trained = false;  ///< true if the tokens count in the loss
};

/// A training row as text.
struct TextSample {
  std::string caption;
  std::vector<TextPart> parts;
};

/// Contents of report.html, or of the page of hearth validate --preview.
struct ReportData {
  std::string title;
  std::string subtitle;  ///< description of the dataset
  std::string command;   ///< shell line that started the run; empty: not shown
  std::vector<std::pair<std::string, std::string>> summary;
  std::vector<CurvePoint> loss, eval_loss, learning_rate;  ///< learning_rate is omitted if it has no points
  /// Curve of the metric by which runs are compared; omitted if it has no points. `title`: title of the
  /// chart; `name`: name of the curve.
  struct Score {
    std::string title, name;
    std::vector<CurvePoint> points;
  };
  Score score;
  std::vector<std::string> class_names;
  std::vector<int64_t> confusion;  ///< counts [true class][predicted class], row-major
  std::vector<ReportSection> sections;
  std::vector<SamplePrediction> samples;
  std::vector<SamplePrediction> mistakes;  ///< wrong predictions, the worst first
  std::vector<ReportTable> tables;
  std::vector<Chart> gpu_charts;
  std::string strips_title;
  std::vector<LegendEntry> legend;  ///< meaning of the colors in `strips`
  std::vector<ImageStrip> strips;
  std::vector<ImageStrip> worst_strips;  ///< images with the worst predictions, the worst first
  std::string worst_note;                ///< order of `worst_strips` as a sentence
  std::vector<TextSample> texts;         ///< training rows; the parts that count in the loss are marked
  std::vector<std::string> charts;       ///< additional charts as SVG
  std::string arena_svg;
};

/// Returns the report as one self-contained HTML page without external links. The page's only script sorts
/// tables; its content security policy forbids all other scripts and all requests.
std::string make_report(const ReportData& data);

}  // namespace hearth::io
