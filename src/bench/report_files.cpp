#include "bench/report_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "cost/device.h"
#include "io/report.h"

namespace hearth::bench {
namespace {

using run::Progress;

constexpr int64_t kMaxOps = 14;

double gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

std::string decimals(double value, int count) { return fmt::format("{:.{}f}", value, count); }

std::string percent(double share) { return share > 0 ? fmt::format("{:.2f}%", 100 * share) : "N/A"; }

double memory_share(const Progress& step) {
  return static_cast<double>(step.memory_bytes) /
         static_cast<double>(std::max<int64_t>(1, step.device_bytes));
}

std::string_view unit_of(const ReportResult& result) { return result.job.is_text ? "tokens" : "images"; }

/// Returns the peak to which the MFU of an FP8 run on `gpu` refers; empty for the peak of the precision.
std::string mfu_note(const ReportResult& result, const cost::Device* gpu) {
  if (gpu == nullptr) return "";
  return std::string(cost::peak_note(*gpu, result.job.requested.matmul_precision));
}

/// Replaces the commas in a CSV cell by spaces.
std::string cell(std::string text) {
  std::ranges::replace(text, ',', ' ');
  return text;
}

struct Row {
  std::string what, measured, modeled;
};

std::vector<Row> rows_of(const ReportResult& result) {
  const Progress& last = result.steps.back();
  const std::optional<ReportModeled>& model = result.modeled;
  const auto modeled = [&](double ReportModeled::*value, double factor, int count) {
    return model ? decimals((*model).*value * factor, count) : std::string("-");
  };
  const double seconds = result.step_seconds();
  std::vector<Row> rows = {
      {"a step (ms)", decimals(1e3 * seconds, 3), modeled(&ReportModeled::step_seconds, 1e3, 3)},
      {fmt::format("{}/s per device", unit_of(result)),
       decimals(result.mean(&Progress::samples_per_second), 1),
       modeled(&ReportModeled::samples_per_second, 1, 1)},
      {"TFLOP/s by the benchmark's count", decimals(result.mean(&Progress::tflops), 3), "-"},
      {"TFLOP/s by the program's count", decimals(result.flops_per_step / seconds * 1e-12, 3),
       modeled(&ReportModeled::flops_per_second, 1e-12, 3)},
      {"MFU",
       percent(result.mean(&Progress::mfu)) + mfu_note(result, cost::find_gpu_by_driver_name(result.device)),
       model ? percent(model->mfu) + mfu_note(result, &cost::find_gpu(model->gpu)) : "-"},
      {"memory per device",
       fmt::format("{} of {}", human_bytes(last.memory_bytes), human_bytes(last.device_bytes)), "-"}};
  return rows;
}

std::string title_of(const ReportResult& result) {
  return fmt::format("{}, {}, {}: {}", result.job.model, result.job.mode, result.precision(),
                     result.job.shape_of(result.fit.bench));
}

/// Formats the planned memory, by purpose (weights, gradients, ...), as a bar chart in HTML.
std::string memory_chart(const planner::PlanReport& plan) {
  const std::pair<const char*, int64_t> purposes[] = {{"weights", plan.weight_bytes},
                                                      {"frozen weights", plan.frozen_bytes},
                                                      {"optimizer and state", plan.optimizer_bytes},
                                                      {"gradients", plan.gradient_bytes},
                                                      {"activations", plan.activation_bytes},
                                                      {"workspace", plan.workspace_bytes},
                                                      {"staging", plan.staging_bytes},
                                                      {"in host memory", plan.host_bytes}};
  std::vector<io::Bar> bars;
  for (const auto& [name, bytes] : purposes) {
    if (bytes > 0) bars.push_back({name, static_cast<double>(bytes), human_bytes(bytes)});
  }
  return io::bar_chart("Memory by purpose", io::curve_color(0), bars);
}

std::string time_chart(const std::vector<ProfileRow>& profile) {
  std::map<std::string, double> seconds;
  double total = 0;
  for (const ProfileRow& row : profile) {
    seconds[row.op] += row.seconds;
    total += row.seconds;
  }
  std::vector<io::Bar> bars;
  for (const auto& [op, spent] : seconds)
    bars.push_back({op, spent, fmt::format("{:.2f} ms, {:.1f}%", 1e3 * spent, 100 * spent / total)});
  std::ranges::stable_sort(bars, std::greater<>(), &io::Bar::value);
  if (std::ssize(bars) > kMaxOps) bars.resize(kMaxOps);
  return io::bar_chart("Time by op", io::curve_color(1), bars);
}

std::vector<io::CurvePoint> curve(const ReportResult& result, double Progress::*value) {
  std::vector<io::CurvePoint> points;
  for (const Progress& step : result.steps) points.push_back({step.step, step.*value});
  return points;
}

io::ReportTable profile_table(const std::vector<ProfileRow>& profile) {
  io::ReportTable table{.title = "Where a step's time goes",
                        .header = {"ms", "nodes", "GFLOP/s", "op", "result shape"},
                        .rows = {}};
  for (const ProfileRow& row : profile) {
    table.rows.push_back({decimals(1e3 * row.seconds, 3), std::to_string(row.count),
                          row.seconds > 0 ? decimals(row.flops / row.seconds * 1e-9, 1) : "-", row.op,
                          row.shape});
  }
  return table;
}

}  // namespace

std::vector<ReportMetric> metrics_of(const ReportResult& result) {
  const std::string rate = decimals(result.mean(&Progress::samples_per_second), 2);
  const std::string tflops = decimals(result.mean(&Progress::tflops), 4);
  if (!result.job.is_text) return {{"FPS_per_GPU", rate}, {"TFLOPS_per_GPU", tflops}};
  const Progress& last = result.steps.back();
  if (result.job.is_finetuning())
    return {{"max_memory_alloc", decimals(gib(last.memory_bytes), 4)}, {"avg_tokens_per_s_per_gpu", rate}};
  std::vector<ReportMetric> metrics = {{"tok_per_s_per_gpu", rate}, {"TFLOPS_per_gpu", tflops}};
  if (result.on_gpu) metrics.push_back({"GPU_memory_usage", decimals(100 * memory_share(last), 2)});
  return metrics;
}

std::vector<ReportMetric> primus_metrics_of(const ReportResult& result) {
  const Progress& last = result.steps.back();
  return {{"tokens_per_second", decimals(last.samples_per_second, 1)},
          {"tflops", decimals(last.tflops, 3)},
          {"model_flops_utilization", last.mfu > 0 ? decimals(100 * last.mfu, 2) : ""}};
}

std::string to_csv(const ReportResult& result) {
  std::string text = "model,performance,metric,mode,precision,batch_size,seq_len,device,num_gpus\n";
  const BenchCase& bench = result.fit.bench;
  for (const ReportMetric& metric : metrics_of(result)) {
    text +=
        fmt::format("{},{},{},{},{},{},{},{},{}\n", result.job.model, metric.value, metric.name,
                    result.job.mode, result.precision(), bench.batch,
                    bench.length * result.job.pixels_per_length, cell(result.device), result.job.num_devices);
  }
  return text;
}

std::string to_primus_csv(const ReportResult& result) {
  std::string text = "model,performance,metric\n";
  for (const ReportMetric& metric : primus_metrics_of(result))
    text += fmt::format("primus_run,{},{}\n", metric.value, metric.name);
  return text;
}

std::string to_runs_summary(const ReportResult& result) {
  return fmt::format("model,batch_size,avg_fps_gpu,avg_tflops\n{},{},{:.2f},{:.4f}\n", result.job.model,
                     result.fit.bench.batch, result.mean(&Progress::samples_per_second),
                     result.mean(&Progress::tflops));
}

std::string to_torchtune_line(const Progress& step) {
  const double memory = gib(step.memory_bytes);
  return fmt::format(
      "Step {} | loss:{:.6f} lr:{:.3e} tokens_per_second_per_gpu:{:.2f} peak_memory_active:{:.4f} "
      "peak_memory_alloc:{:.4f} peak_memory_reserved:{:.4f} grad_norm:{:.6f}\n",
      step.step, step.loss, step.learning_rate, step.samples_per_second, memory, memory, memory,
      step.grad_norm);
}

std::string to_torchtune_summary(const ReportResult& result) {
  return fmt::format("Max memory alloc (last half): {:.4f}\nAverage tokens/s/gpu (last half): {:.2f}\n",
                     gib(result.steps.back().memory_bytes), result.mean(&Progress::samples_per_second));
}

std::string to_performance_line(const ReportResult& result) {
  const std::vector<ReportMetric> metrics = metrics_of(result);
  const ReportMetric& first =
      result.job.is_text && result.job.is_finetuning() ? metrics.back() : metrics.front();
  return fmt::format("performance: {} {}\n", first.value, first.name);
}

std::string to_table(const ReportResult& result) {
  std::string text = fmt::format("{} on {} x {}\n", title_of(result), result.job.num_devices, result.device);
  const std::string modeled = result.modeled ? fmt::format("modeled, {}", result.modeled->gpu) : "modeled";
  text += fmt::format("  {:<34} {:>20} {:>20}\n", "", "measured", modeled);
  for (const Row& row : rows_of(result))
    text += fmt::format("  {:<34} {:>20} {:>20}\n", row.what, row.measured, row.modeled);
  return text;
}

std::string to_page(const ReportResult& result) {
  const planner::PlanReport& plan = result.fit.plan;
  const Progress& last = result.steps.back();
  io::ReportData data{.title = title_of(result)};
  data.summary = {{fmt::format("{}/s per device", unit_of(result)),
                   decimals(result.mean(&Progress::samples_per_second), 1)},
                  {"TFLOP/s per device", decimals(result.mean(&Progress::tflops), 3)},
                  {"MFU", percent(result.mean(&Progress::mfu))},
                  {"memory per device",
                   fmt::format("{} ({:.2f}%)", human_bytes(last.memory_bytes), 100 * memory_share(last))},
                  {"device", fmt::format("{} x {}", result.job.num_devices, result.device)},
                  {"it fits", result.fit.how}};
  if (result.fit.refused)
    data.summary.emplace_back("requested, does not fit",
                              fmt::format("{}: {}", result.job.shape_of(result.job.requested),
                                          human_bytes(result.fit.refused->peak_bytes)));
  data.loss = curve(result, &Progress::loss);
  const std::string rate = fmt::format("{}/s", unit_of(result));
  data.score = {.title = rate, .name = "per device", .points = curve(result, &Progress::samples_per_second)};
  data.charts = {memory_chart(plan)};
  if (!result.profile.empty()) data.charts.push_back(time_chart(result.profile));
  io::ReportTable figures{
      .title = "Measured and predicted",
      .header = {"", "measured",
                 result.modeled ? fmt::format("modeled, {}", result.modeled->gpu) : "modeled"},
      .rows = {}};
  for (Row& row : rows_of(result)) figures.rows.push_back({row.what, row.measured, row.modeled});
  data.tables = {std::move(figures)};
  if (!result.profile.empty()) data.tables.push_back(profile_table(result.profile));
  data.arena_svg = result.arena_svg;
  return io::make_report(data);
}

}  // namespace hearth::bench
