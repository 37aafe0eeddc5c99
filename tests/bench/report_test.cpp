#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "base/error.h"
#include "bench/open_workload.h"
#include "bench/report_job.h"
#include "engine/plan_builder.h"
#include "planner/plan_report.h"
#include "run/step_line.h"

namespace hearth::bench {
namespace {

using testing::HasSubstr;

int64_t num_parameters(const models::DecoderConfig& decoder) {
  const BenchCase bench{.name = "report", .length = 16, .decoder = &decoder};
  const engine::EngineOptions options = engine_options(bench, {});
  return planner::make_plan_report(engine::measure_plan(options, std::span(&bench.batch, 1), {}))
      .num_parameters;
}

// What the models' makers publish.
TEST(SlowReportModels, HaveAsManyWeightsAsTheirMakersSay) {
  for (const auto& [name, weights] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"Llama-2-7B", 6738415616},       {"Llama-2-13B", 13015864320}, {"Llama-2-70B", 68976648192},
           {"Llama-3-8B", 8030261248},       {"Llama-3.1-8B", 8030261248}, {"Llama-3.3-70B", 70553706496},
           {"Llama-3.1-405B", 405853388800}, {"Llama-3.2-1B", 1235814400}, {"Llama-3.2-3B", 3212749824},
           {"Qwen2.5-0.5B", 494032768},      {"Qwen2.5-1.5B", 1543714304}, {"Qwen2.5-3B", 3085938688},
           {"Qwen2.5-7B", 7615616512},       {"Qwen2.5-14B", 14770033664}, {"Qwen2.5-32B", 32763876352},
           {"Qwen2.5-72B", 72706203648},     {"Qwen3-0.6B", 596049920},    {"Qwen3-1.7B", 1720574976},
           {"Qwen3-4B", 4022468096},         {"Qwen3-8B", 8190735360},     {"Qwen3-14B", 14768307200},
           {"Qwen3-32B", 32762123264}}) {
    const ReportModel* model = find_report_model(name);
    ASSERT_NE(model, nullptr) << name;
    EXPECT_EQ(num_parameters(decoder_config(*model)), weights) << name;
  }
}

TEST(ReportModels, AreFoundInCapitalsOrNot) {
  EXPECT_EQ(find_report_model("llama-3.1-8b"), find_report_model("Llama-3.1-8B"));
  EXPECT_EQ(find_report_model("RESNET-50")->image_model, "resnet50");
  EXPECT_EQ(find_report_model("Llama-3.1"), nullptr);
}

TEST(ReportModels, CountWorkAsTorchtitanDoes) {
  const models::DecoderConfig decoder = decoder_config(*find_report_model("Llama-3.1-8B"));
  EXPECT_NEAR(torchtitan_flops(decoder, 8030261248, 8192) / 8192, 57.91e9, 0.005e9);
}

/// What a regular expression's group takes of a text.
std::string read(const std::string& text, const std::string& pattern) {
  std::smatch found;
  return std::regex_search(text, found, std::regex(pattern)) ? found[1].str() : "";
}

TEST(StepLine, OfAFastGpuIsReadByEveryParser) {
  char text[320];
  const run::Progress step{.step = 7,
                           .samples_per_second = 12345,
                           .unit = "tokens",
                           .tflops = 1234.5,
                           .memory_bytes = int64_t{40} << 30,
                           .device_bytes = int64_t{80} << 30,
                           .mfu = 0.41234};
  const std::string line(text, run::write_step_line(text, sizeof(text), step));
  const std::string mad = R"(\s*(\d+\.\d+|\d{1,3}(?:,\d{3})*(?:\.\d+)?|\d+))";
  EXPECT_EQ(read(line, "tps:" + mad), "12345.0");
  EXPECT_EQ(read(line, "tflops:" + mad), "1234.500");
  EXPECT_EQ(read(line, R"(memory:\s*[\d.]+GiB\((\d+\.\d\d)%\))"), "50.00");
  EXPECT_EQ(read(line, R"(tps:\s*([0-9][0-9.,eE+-]*))"), "12345.0");
  EXPECT_EQ(read(line, R"(tflops:\s*([0-9][0-9.eE+-]*))"), "1234.500");
  EXPECT_EQ(read(line, R"(mfu:\s*([0-9][0-9.]*)%?)"), "41.23");
}

std::string refusal(const ReportJob& job, int64_t bytes) {
  try {
    fit_job(job, bytes);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(ReportJob, RunsTheLargestBatchThatFitsAndElseAShorterRow) {
  const ReportJob job = open_job({.model = "Llama-260K", .length = 512, .batch = 64});
  const ReportFit all = fit_job(job, int64_t{4} << 30);
  EXPECT_EQ(all.bench.batch, 64);
  EXPECT_EQ(all.how, "unchanged");
  EXPECT_FALSE(all.refused);

  const int64_t some = all.plan.peak_bytes / 8;
  const ReportFit smaller = fit_job(job, some);
  EXPECT_GT(smaller.bench.batch, 1);
  EXPECT_LT(smaller.bench.batch, 64);
  EXPECT_EQ(smaller.bench.length, 512);
  EXPECT_LE(smaller.plan.peak_bytes, some);
  EXPECT_EQ(smaller.plan.host_bytes, 0) << "the processor's memory is the host's";
  EXPECT_EQ(smaller.refused->peak_bytes, all.plan.peak_bytes);
  ReportJob one_more = job;
  one_more.requested.batch = smaller.bench.batch + 1;
  EXPECT_TRUE(fit_job(one_more, some).refused) << "a larger batch fits too";

  const int64_t kept = all.plan.peak_bytes - all.plan.arena_bytes - all.plan.staging_bytes;
  const ReportFit shorter = fit_job(job, kept + (1 << 20));
  EXPECT_EQ(shorter.bench.batch, 1);
  EXPECT_LT(shorter.bench.length, 512);
  EXPECT_THAT(refusal(job, kept), HasSubstr("batch 64 of 512 tokens"));
}

}  // namespace
}  // namespace hearth::bench
