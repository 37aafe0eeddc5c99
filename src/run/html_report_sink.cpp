#include <fmt/format.h>

#include "arena/draw.h"
#include "base/run_files.h"
#include "base/text.h"
#include "io/report.h"
#include "io/run_outputs.h"
#include "run/run_sink.h"

namespace hearth::run {
namespace {

/// Returns a chart for each GPU sensor that has readings in the log.
std::vector<io::Chart> gpu_charts(const fs::path& log, int num_workers) {
  struct Line {
    size_t chart;
    const char* key;
    const char* name;
  };
  constexpr Line kLines[] = {{0, "junction_c", "junction"},
                             {0, "edge_c", "edge"},
                             {0, "memory_c", "memory"},
                             {1, "power_w", "power"},
                             {3, "idle_percent", "gaps between steps"},
                             {2, "clock_mhz", "clock"}};
  std::vector<io::Chart> charts = {
      {"Temperature (C)", {}}, {"Power (W)", {}}, {"Clock (MHz)", {}}, {"Idle time (%)", {}}};
  std::vector<std::string> keys;
  for (int gpu = 0; gpu < num_workers; ++gpu)
    for (const Line& line : kLines) keys.push_back(fmt::format("/gpu/{}/{}", gpu, line.key));
  std::vector<std::vector<io::CurvePoint>> curves = io::read_curves(log, keys);
  for (size_t i = 0; i < curves.size(); ++i) {
    if (curves[i].empty()) continue;
    const Line& line = kLines[i % std::size(kLines)];
    std::vector<io::Series>& series = charts[line.chart].series;
    series.push_back(
        {.name = num_workers == 1 ? line.name : fmt::format("{} {}", i / std::size(kLines), line.name),
         .color = io::curve_color(series.size()),
         .points = std::move(curves[i])});
  }
  std::erase_if(charts, [](const io::Chart& chart) { return chart.series.empty(); });
  return charts;
}

io::ReportTable sparsity_table(const std::vector<engine::LayerSparsity>& layers) {
  io::ReportTable table{.title = "Sparsity", .header = {"weight", "elements", "zeros"}, .rows = {}};
  for (const engine::LayerSparsity& layer : layers) {
    table.rows.push_back(
        {layer.name, std::to_string(layer.num_weights), fmt::format("{:.1f}%", 100 * layer.fraction())});
  }
  return table;
}

class HtmlReportSink : public RunSink {
 public:
  explicit HtmlReportSink(const SinkContext& context) : run_(context) {}

  void finish(const EndReport& end) override {
    const recipe::Recipe& recipe = run_.recipe;
    const fs::path log = run_.folder / kLogFile;
    io::ReportData data{
        .title = fmt::format("{}: {}", run_.folder.filename().string(), recipe::model_name(recipe)),
        .subtitle = recipe.data.path.empty() ? recipe.data.kind : recipe.data.path.string(),
        .command = std::string(end.command)};
    data.summary = {{"best", std::string(end.best)},
                    {"steps", std::to_string(end.step)},
                    {"time", fmt::format("{:.1f} s", end.elapsed_seconds)},
                    {"precision", recipe::precision_name(recipe)},
                    {"arena", human_bytes(run_.plan.arena_bytes)},
                    {"weights and state", human_bytes(run_.plan.kept_bytes())}};
    auto curves = io::read_curves(log, {"loss", "lr", "eval_loss"});
    data.loss = std::move(curves[0]);
    data.learning_rate = std::move(curves[1]);
    data.eval_loss = std::move(curves[2]);
    data.gpu_charts = gpu_charts(log, run_.num_workers);
    run_.task.report(end.result, log, data);
    if (!end.layers.empty()) data.tables.push_back(sparsity_table(end.layers));
    const exec::Program& program = run_.plan.train_program();
    data.arena_svg = arena::draw_svg(program.problem, program.solution);
    write_file_atomically(run_.folder / io::kReportFile, io::make_report(data));
  }

 private:
  SinkContext run_;
};

}  // namespace

std::unique_ptr<RunSink> open_html_report(const SinkContext& context) {
  return std::make_unique<HtmlReportSink>(context);
}

}  // namespace hearth::run
