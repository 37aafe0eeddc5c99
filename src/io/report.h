#pragma once

#include <string>
#include <utility>
#include <vector>

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
};

/// A line of a chart: values over steps, with a name and a CSS color.
struct Series {
  std::string name;
  std::string color;
  std::vector<CurvePoint> points;
};
struct Chart {
  std::string title;
  std::vector<Series> series;
};

/// A color and its meaning in a legend.
struct LegendEntry {
  std::string name;
  std::string color;  ///< CSS, "#c08040"
};

/// Contents of report.html.
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
  std::vector<SamplePrediction> samples;
  std::vector<ReportTable> tables;
  std::vector<Chart> gpu_charts;
  std::string strips_title;
  std::vector<LegendEntry> legend;  ///< meaning of the colors in `strips`
  std::vector<ImageStrip> strips;
  std::vector<std::string> charts;  ///< additional charts as SVG
  std::string arena_svg;
};

/// Returns the report as one self-contained HTML page without scripts and external links.
std::string make_report(const ReportData& data);

enum class Scale : uint8_t { linear, log };
/// Returns a line chart as SVG. `along`: label of the horizontal axis. On a linear scale, a few spikes far
/// above the other points are cut off at the upper edge. A log scale omits values that are not above 0.
std::string line_chart(const std::string& title, const std::vector<Series>& series,
                       std::string_view along = "step", Scale scale = Scale::linear);

/// A bar of a bar chart: its label (`name`), its length (`value`) and the text after it.
struct Bar {
  std::string name;
  double value = 0;
  std::string text;
};
/// Returns a chart of horizontal bars as SVG.
std::string bar_chart(const std::string& title, const std::string& color, const std::vector<Bar>& bars);

/// Escapes a text for HTML.
std::string escape_html(std::string_view text);
/// Encodes bytes in base64.
std::string base64(std::string_view bytes);

}  // namespace hearth::io
