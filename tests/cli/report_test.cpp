#include <cmath>
#include <regex>
#include <sstream>

#include "cli/program.h"
#include "tiny_language_model.h"

namespace hearth {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using Texts = std::vector<std::string>;

/// What the parsers of AMD's benchmarks read: all that a pattern's group takes.
Texts all_of(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  Texts found;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at)
    found.push_back((*at)[1].str());
  return found;
}

/// MAD's of 2025: a number after a key.
Texts mad_numbers(const std::string& text, const std::string& key) {
  return all_of(text, key + R"(\s*(\d+\.\d+|\d{1,3}(?:,\d{3})*(?:\.\d+)?|\d+))");
}

double number(std::string text) {
  std::erase(text, ',');
  return std::stod(text);
}

double mean(const Texts& texts, size_t begin, size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += number(texts.at(i));
  return sum / static_cast<double>(end - begin);
}

Texts cells_of(const std::string& line) {
  Texts cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) cells.push_back(cell);
  return cells;
}

class Report : public Program {
 protected:
  /// The lines of perf_MODEL.csv after the first, by the name of the metric.
  std::map<std::string, Texts> table(const std::string& file) const {
    std::istringstream in(get(file));
    std::string line;
    std::getline(in, line);
    EXPECT_EQ(line, "model,performance,metric,mode,precision,batch_size,seq_len,device,num_gpus");
    std::map<std::string, Texts> rows;
    while (std::getline(in, line)) {
      const Texts cells = cells_of(line);
      EXPECT_EQ(cells.size(), 9U) << line;
      rows[cells.at(2)] = cells;
    }
    return rows;
  }
  static Texts after_metric(const Texts& cells) { return {cells.begin() + 3, cells.end()}; }
};

constexpr const char* kReport = "hearth bench report -m llama-260k -s 32 -b 1 --threads 1 ";

TEST_F(Report, OfPretrainingIsReadAsTorchtitans) {
  const std::string out = works(std::string(kReport) + "--steps 41 --out made");
  const std::string log = get("made/Llama-260K-pretrain.log");
  EXPECT_EQ(out, log);
  const Texts rates = mad_numbers(log, "tps:"), work = mad_numbers(log, "tflops:");
  ASSERT_EQ(rates.size(), 41U);
  ASSERT_EQ(work.size(), 41U);
  auto rows = table("made/perf_Llama-260K.csv");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_NEAR(number(rows["tok_per_s_per_gpu"].at(1)), mean(rates, 30, 40), 0.06);
  EXPECT_NEAR(number(rows["TFLOPS_per_gpu"].at(1)), mean(work, 30, 40), 0.0006);
  EXPECT_GT(number(rates.back()), 0);
  for (auto& [metric, cells] : rows)
    EXPECT_THAT(after_metric(cells), ElementsAre("pretrain", "BF16", "1", "32", "cpu", "1")) << metric;
  EXPECT_THAT(all_of(log, R"(memory:\s*[\d.]+GiB\((\d+\.\d\d)%\))"), testing::SizeIs(41));
  const Texts performance = all_of(
      out, R"(performance:\s+([+\-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+\-]?[0-9]+)?)\s+tok_per_s_per_gpu)");
  EXPECT_THAT(performance, ElementsAre(rows["tok_per_s_per_gpu"].at(1)));
}

TEST_F(Report, IsReadByPrimus) {
  const std::string log = works(std::string(kReport) + "--steps 3 --format primus --out made");
  std::string last;
  std::istringstream in(log);
  for (std::string line; std::getline(in, line);) {
    const auto has = [&](const char* key) { return line.find(key) != std::string::npos; };
    if (has("tps:") && has("tflops:") && has("mfu:")) last = line;
  }
  EXPECT_THAT(last, testing::StartsWith("step:  3 "));
  EXPECT_THAT(all_of(last, R"(mfu:\s*([0-9][0-9.]*)%?)"), ElementsAre()) << "a processor's peak is not known";
  EXPECT_EQ(get("made/primus_perf_output.csv"),
            fmt::format("model,performance,metric\nprimus_run,{},tokens_per_second\nprimus_run,{},tflops\n"
                        "primus_run,,model_flops_utilization\n",
                        all_of(last, R"(tps:\s*([0-9][0-9.,eE+-]*))").at(0),
                        all_of(last, R"(tflops:\s*([0-9][0-9.eE+-]*))").at(0)));
  EXPECT_FALSE(has("made/perf_Llama-260K.csv"));
}

TEST_F(Report, OfFinetuningIsReadAsTorchtunes) {
  for (const char* mode : {"finetune_fw", "finetune_lora", "finetune_qlora"}) {
    const std::string out = works(fmt::format("{} -t {} --steps 5 --out made", kReport, mode));
    const Texts paths = all_of(out, R"(Writing logs to (\S+))");
    ASSERT_EQ(paths.size(), 1U);
    const std::string log = get(paths[0]);
    const Texts memory = all_of(log, "peak_memory_alloc:([0-9]+\\.[0-9]+)");
    const Texts rates = all_of(log, "tokens_per_second_per_gpu:([0-9]+\\.[0-9]+)");
    ASSERT_EQ(memory.size(), 5U) << mode;
    ASSERT_EQ(rates.size(), 5U) << mode;
    auto rows = table("made/perf_Llama-260K.csv");
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows["max_memory_alloc"].at(1), memory.back());
    EXPECT_NEAR(number(rows["avg_tokens_per_s_per_gpu"].at(1)), mean(rates, 2, 5), 0.011);
    EXPECT_THAT(mad_numbers(out, "Max memory alloc \\(last half\\):"), ElementsAre(memory.back()));
    EXPECT_THAT(mad_numbers(out, "Average tokens/s/gpu \\(last half\\):"),
                ElementsAre(rows["avg_tokens_per_s_per_gpu"].at(1)));
    EXPECT_EQ(rows["max_memory_alloc"].at(3), mode);
    EXPECT_THAT(out, HasSubstr("performance: " + rows["avg_tokens_per_s_per_gpu"].at(1) + " avg_tokens"));
  }
}

TEST_F(Report, OfImagesHasFrames) {
  works("hearth bench report -m ResNet-18 -s 16 -b 2 --steps 2 --threads 1 --out made");
  auto rows = table("made/perf_ResNet-18.csv");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_GT(number(rows["FPS_per_GPU"].at(1)), 0);
  EXPECT_GT(number(rows["TFLOPS_per_GPU"].at(1)), 0);
  EXPECT_EQ(get("made/runs_summary.csv"),
            fmt::format("model,batch_size,avg_fps_gpu,avg_tflops\nResNet-18,2,{},{}\n",
                        rows["FPS_per_GPU"].at(1), rows["TFLOPS_per_GPU"].at(1)));
}

TEST_F(Report, OnAGpuCountsItsMemory) {
  const std::string out = works("export HEARTH_EMULATED=8MiB && " + std::string(kReport) +
                                "--steps 1 --device emulated --out made");
  auto rows = table("made/perf_Llama-260K.csv");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows["GPU_memory_usage"].at(7), "emulated GPU 0");
  EXPECT_THAT(all_of(out, R"(memory:\s*[\d.]+GiB\((\d+\.\d\d)%\))"),
              ElementsAre(rows["GPU_memory_usage"].at(1)));
  EXPECT_GT(number(rows["GPU_memory_usage"].at(1)), 30) << "of 8 MiB";
}

TEST_F(Report, SaysWhatDoesNotFitAndRunsTheMostThatDoes) {
  const std::string out = works(
      "hearth bench report -m llama-260k -s 64 -b 64 --threads 1 --steps 1 --memory 8MiB "
      "--out made");
  EXPECT_THAT(
      out, AllOf(ContainsRegex("batch 64 of 64 tokens was requested, but needs [0-9.]+ MiB of the 8.00 MiB"),
                 ContainsRegex("\nbatch [0-9]+ of 64 tokens runs on cpu"), HasSubstr("activations"),
                 HasSubstr("recomputation")));
  const int64_t ran = std::stoll(all_of(out, "batch (\\d+) of 64 tokens runs on").at(0));
  EXPECT_GT(ran, 1);
  EXPECT_LT(ran, 64);
  EXPECT_EQ(table("made/perf_Llama-260K.csv")["tok_per_s_per_gpu"].at(5), std::to_string(ran));
  EXPECT_THAT(get("made/Llama-260K-pretrain.html"), HasSubstr("requested, does not fit"));
}

TEST_F(Report, OfSeveralProcessesSaysWhatEachDoes) {
  const std::string out = works(std::string(kReport) + "-n 2 --steps 2 --out made");
  auto rows = table("made/perf_Llama-260K.csv");
  EXPECT_EQ(rows["tok_per_s_per_gpu"].at(8), "2");
  EXPECT_EQ(mad_numbers(out, "tps:").size(), 2U);
}

TEST_F(Report, TakesAFolderAndLeavesAPage) {
  write_tiny_model(at("my model"));
  const std::string out = works(
      "hearth bench report -t finetune_lora -m 'my model' -s 32 -b 1 --threads 1 --steps 2 --model-gpu "
      "rx7900xt "
      "--out made");
  EXPECT_THAT(out, AllOf(HasSubstr("measured"), HasSubstr("modeled, rx7900xt")));
  EXPECT_EQ(table("made/perf_my_model.csv").size(), 2U) << "what is modeled is not among the measured";
  const std::string page = get("made/my_model-finetune_lora.html");
  for (const char* part : {"tokens/s</text>", "Memory by purpose", "frozen weights", "Time by op",
                           "modeled, rx7900xt", "The arena over one training step", "</html>"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_EQ(count_of(page, "src='http"), 0U);
}

TEST_F(Report, OfEightBitsNamesThePeakOfItsMfu) {
  const std::string run = "hearth bench report -t pretrain -m Llama-260K -p FP8 --threads 1 --steps 2 ";
  EXPECT_THAT(works(run + "--model-gpu rx9070xt --out made"),
              AllOf(HasSubstr("FP8: batch"), HasSubstr("% of the FP8 peak")));
  EXPECT_THAT(works(run + "--model-gpu rx7900xt --out again"), Not(HasSubstr("of the FP8 peak")));
  EXPECT_EQ(table("made/perf_Llama-260K.csv").size(), 2U);
}

TEST_F(Report, OfWhatThereIsNotIsRefusedInASentence) {
  const std::string report = "hearth bench report ";
  refused(report, {"-m", "Llama-3.1-8B"});
  refused(report + "-m Lama-3.1-8B", {"'Lama-3.1-8B'", "did you mean 'Llama-3.1-8B'?", "--models"});
  refused(report + "-m ResNet-18 -p FP8", {"BF16 or FP32", "ResNet-18", "FP8"});
  refused(report + "-t finetune_qlora -m Llama-3.1-8B -p FP8", {"BF16 or FP32", "nf4", "FP8"});
  refused(report + "-m Llama-3.1-8B -p INT4", {"BF16, FP32 or FP8", "'INT4'"});
  refused(report + "-m Llama-3.1-8B -t posttrain", {"pretrain", "finetune_qlora", "'posttrain'"});
  refused(report + "-m Llama-2-7B -s 8192", {"16 to 4096", "-s of Llama-2-7B", "8192"});
  refused(report + "-m Llama-3.1-8B -s 0", {"-s", "0"});
  refused(report + "-m Llama-3.1-8B -b 100000", {"1 to 65536", "-b"});
  refused(report + "-m ResNet-50 -t finetune_lora", {"pretrain", "ResNet-50"});
  refused(report + "-m ResNet-50 -b 1", {"-b of ResNet-50", "2 to"});
  refused(report + "-m ResNet-50 --format primus", {"language model", "ResNet-50"});
  refused(report + "-m Llama-260K --format csv", {"mad or primus", "'csv'"});
  refused(report + "-m Llama-260K --memory much", {"--memory", "'much'"});
  refused(report + "-m Llama-260K --memory 1MiB", {"1.00 MiB", "Llama-260K", "batch 2 of 64 tokens"});
  refused(report + "-m Llama-260K --model-gpu rx580", {"'rx580'", "rx7900xt"});
  refused(report + "-m Llama-260K -n 2 --device emulated", {"2 GPUs", "got 1"});
  refused(report + "-m Llama-260K -n 2 --device emulated:0", {"-n 2", "emulated:0"});
  refused(report + "-m Llama-260K --device cuda", {"--device", "'cuda'"});
  EXPECT_FALSE(has("perf_Llama-260K.csv"));
}

TEST_F(Report, ListsItsModels) {
  EXPECT_THAT(
      works("hearth bench report --models"),
      AllOf(ContainsRegex("\nLlama-3.1-8B +8192 tokens, batch 18 \\(pretrain\\), 16 \\(finetune\\)\n"),
            ContainsRegex("\nResNet-50 +224 pixels, batch 128\n")));
}

}  // namespace
}  // namespace hearth
