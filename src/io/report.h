#pragma once

#include <string>
#include <utility>
#include <vector>

#include "io/run_log.h"

namespace hearth::io {

/// An image with what the model made of it.
struct SamplePrediction {
  std::string png;  ///< a PNG file's bytes
  std::string truth;
  std::string predicted;
  double probability = 0;
};

/// Images side by side, such as a picture, its truth and its prediction.
struct ImageStrip {
  std::vector<std::string> images;  ///< bytes of PNG or JPEG files
  std::string caption;
};

struct ReportTable {
  std::string title;
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};

/// A line chart: series of (name, CSS color, points) over steps.
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
  std::string subtitle;  ///< description of the data
  std::string command;   ///< shell line that started the run; empty: not shown
  std::vector<std::pair<std::string, std::string>> summary;
  std::vector<CurvePoint> loss, eval_loss, learning_rate;  ///< the last is drawn where there are points
  /// What runs are compared by, drawn where there are points: a title, the name of the line.
  struct Score {
    std::string title, name;
    std::vector<CurvePoint> points;
  };
  Score score;
  std::vector<std::string> class_names;
  std::vector<int64_t> confusion;  ///< [true][predicted]
  std::vector<SamplePrediction> samples;
  std::vector<ReportTable> tables;
  std::vector<Chart> gpu_charts;
  std::string strips_title;
  std::vector<LegendEntry> legend;  ///< colors in the sample images
  std::vector<ImageStrip> strips;
  std::vector<std::string> pictures;  ///< more charts, as SVG
  std::string arena_svg;
};

/// One self-contained page: no scripts, no links to anywhere.
std::string make_report(const ReportData& data);

enum class Scale : uint8_t { linear, log };
/// Returns a line chart as SVG; `along` labels the horizontal axis. On a linear scale, a few spikes far above
/// the other points are drawn at the upper edge. A log scale omits values that are not above 0.
std::string line_chart(const std::string& title, const std::vector<Series>& series,
                       std::string_view along = "step", Scale scale = Scale::linear);

/// Bars one below the other as SVG, with what each says after it.
struct Bar {
  std::string name;
  double value = 0;
  std::string text;
};
std::string bar_chart(const std::string& title, const std::string& color, const std::vector<Bar>& bars);

/// Text safe inside HTML; base64 of bytes.
std::string escape_html(std::string_view text);
std::string base64(std::string_view bytes);

}  // namespace hearth::io
