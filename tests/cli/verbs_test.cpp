#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "cli/program.h"
#include "data/images/image.h"
#include "io/safetensors.h"
#include "tiny_language_model.h"

namespace hearth {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

class Verbs : public Program {};

TEST_F(Verbs, TrainTellsItsSteps) {
  const std::string out = works("hearth train tiny.yaml --out run");
  EXPECT_THAT(out, AllOf(HasSubstr("mlp: "), HasSubstr("70 training and 32 validation images"),
                         ContainsRegex("\nstep:  2  loss:  [0-9.]+  grad_norm: +[0-9.]+  memory: "),
                         ContainsRegex("done: 6 steps in [0-9.]+ s, best validation accuracy [0-9.]+%"),
                         HasSubstr("run folder: run ")));
  EXPECT_THAT(out, testing::Not(HasSubstr("\033")));
}

TEST_F(Verbs, ARunFolderIsEnoughToGoOn) {
  const std::string train = "hearth train tiny.yaml schedule.name=constant init=first/model.safetensors ";
  works("hearth train tiny.yaml --out first");
  works(train + "--out whole train.steps=12");
  works(train + "--out run");
  works(
      "mkdir away && mv run away/run && rm -r first tiny.yaml && "
      "hearth train --resume --out away/run train.steps=12 && hearth eval away/run");
  EXPECT_TRUE(get("away/run/model.safetensors") == get("whole/model.safetensors"));
}

TEST_F(Verbs, ALanguageModelsRunFolderIsEnoughToGoOnButForTheText) {
  write_tiny_model(at("model"));
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("line {} of {}\n", i * 7 % 23, i);
  put("text.txt", text);
  put("text.yaml", R"(model: {config: model/config.json, tokenizer: model}
data: {kind: text, path: text.txt, context: 64, cache: cache}
train: {steps: 4, batch: 2, checkpoint_every: 2}
schedule: {name: constant}
optimizer: {name: adamw, lr: 0.01}
)");
  works("hearth train text.yaml --out whole train.steps=8");
  works("hearth train text.yaml --out run");
  works(
      "mkdir away && mv run away/run && mv text.txt away/other.txt && rm -r model cache text.yaml && "
      "hearth train --resume --out away/run data.path=away/other.txt train.steps=8");
  EXPECT_TRUE(get("away/run/model.safetensors") == get("whole/model.safetensors"));
}

TEST_F(Verbs, CheckpointsAreListedAndPruned) {
  works("hearth train tiny.yaml --out run train.checkpoint_every=2 train.keep_checkpoints=9");
  EXPECT_THAT(works("hearth checkpoints run"),
              AllOf(ContainsRegex("\n +6 .* complete; --resume resumes from here\n +4 .* complete\n +2 "),
                    testing::Not(HasSubstr("skipped"))));
  EXPECT_THAT(works("hearth checkpoints run --prune 1"),
              AllOf(ContainsRegex("^ +4 .* deleted\n +2 .* deleted\n"), ContainsRegex("\n +6 .* complete")));
}

TEST_F(Verbs, TrainOnAnEmulatedGpuSaysWhatTheProcessorDoes) {
  EXPECT_THAT(
      works("hearth train tiny.yaml --out run device=emulated"),
      AllOf(ContainsRegex("on emulated GPU 0 \\(emu:00:00.0\\): 0 of [0-9]+ nodes of a step have no kernel"),
            HasSubstr("done: 6 steps")));
  works("hearth train --out run --resume train.epochs=4");
  works("hearth eval run");
}

TEST_F(Verbs, DoctorTellsWhatWasBuiltAndFound) {
  EXPECT_THAT(works("export HEARTH_MODULES=. && hearth doctor"),
              AllOf(ContainsRegex("^hearth     [0-9.]+, compiled by .*\nmodules    only emulated GPUs\n"),
                    ContainsRegex("\nok       host-memory: ")));
}

TEST_F(Verbs, DoctorExaminesTheFilesOfAnotherMachine) {
  put("other/proc/sys/kernel/osrelease", "6.14.0\n");
  put("other/sys/bus/pci/devices/0000:03:00.0/class", "0x030000\n");
  put("other/sys/bus/pci/devices/0000:03:00.0/vendor", "0x1002\n");
  put("other/sys/bus/pci/devices/0000:03:00.0/device", "0x744c\n");
  const Result result = shell("hearth doctor --root other --json");
  EXPECT_EQ(result.code, 2) << result.err;
  const Json found = Json::parse(result.out);
  EXPECT_EQ(found.at("status"), 2);
  EXPECT_EQ(found.at("gpus").at(0).at("architecture"), "gfx1100");
  std::vector<std::string> broken;
  for (const Json& finding : found.at("findings"))
    if (finding.at("level") == "broken") broken.push_back(finding.at("id"));
  EXPECT_THAT(broken, ElementsAre("driver"));
  refused("hearth doctor --root absent", {"expected a folder for --root, got 'absent'"});
}

TEST_F(Verbs, TrainFillsItsFolder) {
  works("hearth train tiny.yaml --out run");
  std::vector<int64_t> steps;
  int num_evaluations = 0;
  for (const std::string& line : lines_of(get("run/trainer_log.jsonl"))) {
    const Json entry = Json::parse(line);
    if (entry.contains("loss")) {
      steps.push_back(entry.at("current_steps"));
      EXPECT_GT(entry.at("loss").get<double>(), 0);
      EXPECT_GT(entry.at("grad_norm").get<double>(), 0);
      EXPECT_EQ(entry.at("total_steps"), 6);
    } else {
      ++num_evaluations;
      EXPECT_GT(entry.at("eval_loss").get<double>(), 0);
      EXPECT_LE(entry.at("eval_accuracy").get<double>(), 1);
    }
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(num_evaluations, 1);
  const io::SafetensorsFile weights(at("run/model.safetensors"));
  ASSERT_NE(weights.find("fc1.weight"), nullptr);
  EXPECT_EQ(weights.find("fc1.weight")->shape, (Shape{16, 192}));
  EXPECT_TRUE(has("run/checkpoints/step-000000006/manifest.json"));
  bool events = false;
  for (const auto& entry : fs::directory_iterator(at("run")))
    events = events || entry.path().filename().string().starts_with("events.out.tfevents.");
  EXPECT_TRUE(events);
}

TEST_F(Verbs, TrainLeavesAReportOfOnePage) {
  works("hearth train tiny.yaml --out run");
  const std::string report = get("run/report.html");
  for (const char* part : {"<h2>Curves</h2>", "<h2>Confusion matrix</h2>", "<h2>Sample predictions</h2>",
                           "<h2>The arena over one training step</h2>", "</html>"}) {
    EXPECT_EQ(count_of(report, part), 1U) << part;
  }
  const std::string samples = report.substr(report.find("<h2>Sample predictions</h2>"));
  EXPECT_EQ(count_of(samples, "src='data:image/png;base64,"), 32U);
  for (const char* part : {"<h2>Precision, recall and F1</h2>", "<h2>Calibration</h2>", "<h2>Labels</h2>",
                           "<h2>Classes</h2>", "<h2>Worst mistakes</h2>"})
    EXPECT_EQ(count_of(report, part), 1U) << part;
  EXPECT_GE(count_of(report, "<svg"), 4U) << "curves and arena";
  EXPECT_EQ(count_of(report, "src='http"), 0U);
  EXPECT_EQ(count_of(report, "<th class='row'>"), 11U) << "a row for each class";
}

TEST_F(Verbs, TrainAgainFromTheRecipeOfARunMakesTheSameWeights) {
  works("hearth train tiny.yaml --out run optimizer.lr=0.02 --seed 7");
  works("hearth train run/config.yaml --out again");
  works("hearth train tiny.yaml --out other");
  EXPECT_EQ(get("run/config.yaml"), get("again/config.yaml"));
  EXPECT_TRUE(get("run/model.safetensors") == get("again/model.safetensors"));
  EXPECT_FALSE(get("run/model.safetensors") == get("other/model.safetensors"));
}

TEST_F(Verbs, ResumeGoesOn) {
  works("hearth train tiny.yaml --out whole train.steps=9 schedule.name=constant");
  works("hearth train tiny.yaml --out run train.steps=5 schedule.name=constant");
  EXPECT_THAT(
      works("hearth train --resume --out run train.steps=9"),
      AllOf(HasSubstr("resuming from run/checkpoints/step-000000005 (step 5)"), HasSubstr("done: 9 steps")));
  EXPECT_TRUE(get("run/model.safetensors") == get("whole/model.safetensors"));
  EXPECT_THAT(works("hearth train --resume --out run"), HasSubstr("all 9 steps are already done"));
}

TEST_F(Verbs, ResumeIsAVerb) {
  works("hearth train tiny.yaml --out whole train.steps=9 schedule.name=constant");
  works("hearth train tiny.yaml --out run train.steps=5 schedule.name=constant");
  EXPECT_THAT(works("hearth resume run train.steps=9"), HasSubstr("done: 9 steps"));
  EXPECT_TRUE(get("run/model.safetensors") == get("whole/model.safetensors"));
  EXPECT_THAT(works("hearth resume run --train.steps 10"), HasSubstr("done: 10 steps"));
  refused("hearth resume none", {"config.yaml", "'none'"});
  refused("hearth resume", {"run is required"});
}

TEST_F(Verbs, ResumeWorkersAndEvalReportEqualFigures) {
  const auto figures = [&](const std::string& run) {
    const std::string report = get(run + "/report.html");
    const size_t begin = report.find("<h2>Precision");
    return report.substr(begin, std::min(report.find("<h2>The arena"), report.find("</main>")) - begin);
  };
  works("hearth train tiny.yaml --out one train.shards=2");
  EXPECT_THAT(figures("one"), AllOf(HasSubstr("Worst mistakes"), HasSubstr("Calibration")));
  works(
      "cp -r one resumed && rm -r resumed/checkpoints/step-000000006 resumed/report.html && hearth resume "
      "resumed");
  EXPECT_EQ(figures("resumed"), figures("one"));
  works("hearth train tiny.yaml --out two devices=2");
  EXPECT_EQ(figures("two"), figures("one"));
  // The only evaluation is the last one, so the best weights are those of the report.
  works("mkdir evaluated && hearth eval one --report evaluated/report.html");
  EXPECT_EQ(figures("evaluated"), figures("one"));
}

TEST_F(Verbs, TheTimeOfAReportCountsFromTheFirstStart) {
  works("hearth train tiny.yaml --out run");
  std::string log = get("run/trainer_log.jsonl");
  const std::string key = "\"elapsed_time\":";
  const size_t at = log.rfind(key) + key.size();
  log.replace(at, log.find('}', at) - at, "4000.5");
  put("run/trainer_log.jsonl", log);
  works("hearth resume run train.steps=7");
  EXPECT_THAT(get("run/report.html"), HasSubstr("4000."));
}

TEST_F(Verbs, NothingBehindALinkOfARunIsOverwritten) {
  put("precious/model.safetensors", "precious");
  works("hearth train tiny.yaml --out run");
  works("rm run/.lock; ln -s ../precious/model.safetensors run/.lock");
  refused("hearth resume run train.steps=8", {"run/.lock is a link"});
  works(
      "rm run/.lock; for f in report.html best.safetensors trainer_log.jsonl model.safetensors; do "
      "rm -f run/$f; ln -s ../precious/model.safetensors run/$f; done");
  works("hearth resume run train.steps=8");
  EXPECT_EQ(get("precious/model.safetensors"), "precious");
  works("ln -s ../precious run/predictions");
  refused("hearth predict run image.png", {"run/predictions is a link"});
  works("mv run/checkpoints elsewhere; ln -s ../elsewhere run/checkpoints");
  refused("hearth resume run train.steps=9", {"run/checkpoints is a link"});
  refused("hearth checkpoints run --prune 1", {"run/checkpoints is a link"});
}

TEST_F(Verbs, ALowLimitOfStacksEndsNoCommand) {
  for (const char* limit : {"1024", "512", "128"}) {
    EXPECT_THAT(works(fmt::format("(ulimit -s {}; hearth --version)", limit)), HasSubstr("hearth "));
    works(fmt::format("rm -rf run; (ulimit -s {}; hearth train tiny.yaml --out run threads=2)", limit));
    refused(fmt::format("(ulimit -s {}; hearth train none.yaml)", limit), {"none.yaml"});
  }
}

TEST_F(Verbs, InterruptLeavesARunThatGoesOn) {
  const std::vector<std::pair<std::string, std::string>> ways = {
      {"kill -INT $!", "supervise=true"},
      {"kill -INT $!", "supervise=false"},
      {"kill -HUP $!; sleep 0.002; kill -HUP $!", "supervise=true"},
      {"kill -HUP $!; sleep 0.002; kill -HUP $!", "supervise=false"}};
  for (const auto& [kill, setting] : ways) {
    const Result result = shell(fmt::format(
        "rm -rf run; '{}' train tiny.yaml --out run train.steps=100000000 schedule.name=constant {} & "
        "until [ -s run/trainer_log.jsonl ]; do sleep 0.05; done; {}; wait $!",
        kProgram, setting, kill));
    EXPECT_EQ(result.code, 130) << kill << setting;
    const size_t at = result.out.find("stopped at step ");
    ASSERT_NE(at, result.out.npos) << kill << setting << result.out;
    const int64_t step = std::stoll(result.out.substr(at + 16));
    EXPECT_THAT(result.out, HasSubstr("resume with: hearth resume run"));
    EXPECT_THAT(
        works(fmt::format("hearth resume run train.steps={}", step + 3)),
        AllOf(HasSubstr(fmt::format("(step {})", step)), HasSubstr(fmt::format("done: {} steps", step + 3))));
  }
}

TEST_F(Verbs, ATerminalHasOneLiveLine) {
  if (std::system("command -v script >/dev/null") != 0) GTEST_SKIP() << "SKIPPED: there is no script(1)";
  const auto in_terminal = [&](const std::string& before, const std::string& run) {
    return shell(fmt::format("script -qec \"{} '{}' train tiny.yaml --out {}\" .typed </dev/null", before,
                             kProgram, run))
        .out;
  };
  const std::string colored = in_terminal("", "one");
  EXPECT_THAT(colored, AllOf(HasSubstr("\r\033[K\033[36m"), HasSubstr("100.0%"), HasSubstr(" 6/6  loss "),
                             HasSubstr(" lr "), HasSubstr(" grad "), HasSubstr(" img/s "), HasSubstr(" GiB "),
                             HasSubstr("ETA 0:00")));
  EXPECT_EQ(count_of(colored, "step:  "), 0U);
  const std::string plain = in_terminal("NO_COLOR=1", "two");
  EXPECT_THAT(plain, AllOf(HasSubstr(" 6/6  loss "), testing::Not(HasSubstr("\033[36m"))));
}

TEST_F(Verbs, ARunGoesOnWithoutItsReader) {
  const auto train = [](const std::string& run, const std::string& setting) {
    return fmt::format("{{ hearth train tiny.yaml --out {0} {1}; echo $? >{0}.code; }}", run, setting);
  };
  for (const std::string run : {"watched", "alone"}) {
    const std::string command = train(run, run == "alone" ? "supervise=false" : "");
    // The reader has closed its end when it opens the gate.
    const Result result = shell(
        fmt::format("mkfifo {0}.gate && {{ read -r _ <{0}.gate; {1}; }} | {{ exec <&-; echo >{0}.gate; }}",
                    run, command));
    EXPECT_EQ(get(run + ".code"), "0\n");
    EXPECT_EQ(
        result.err,
        "hearth: cannot write to standard output (Broken pipe); the run continues, see trainer_log.jsonl in "
        "its folder\n");
    EXPECT_TRUE(has(run + "/model.safetensors"));
  }
  EXPECT_THAT(shell(train("full", "") + " >/dev/full").err,
              HasSubstr("cannot write to standard output (No space left on device)"));
  EXPECT_EQ(get("full.code"), "0\n");
}

TEST_F(Verbs, EvalAgreesWithTheLog) {
  works("hearth train tiny.yaml --out run train.steps=40 train.eval_every=40 train.checkpoint_every=40");
  const std::string config = get("run/config.yaml");
  const std::string out = works("hearth eval run");
  const Json last = Json::parse(lines_of(get("run/trainer_log.jsonl")).back());
  EXPECT_GT(last.at("eval_accuracy").get<double>(), 0);
  EXPECT_THAT(out,
              AllOf(HasSubstr("run/best.safetensors: "),
                    HasSubstr(fmt::format("loss {:.4f}", last.at("eval_loss").get<double>())),
                    HasSubstr(fmt::format("accuracy {:.2f}%", 100 * last.at("eval_accuracy").get<double>())),
                    HasSubstr("(32 held out)")));
  EXPECT_EQ(get("run/config.yaml"), config);
}

std::string picture(uint8_t pixel) {
  data::Image image{.height = 8, .width = 8, .channels = 3};
  image.pixels.assign(8 * 8 * 3, pixel);
  return data::encode_png(image);
}

TEST_F(Verbs, TheReportShowsImagesOfEveryClass) {
  for (const char* name : {"dark", "gray", "light"}) {
    for (int i = 0; i < 100; ++i) put(fmt::format("pictures/test/{}/{}.png", name, i), picture(9));
    put(fmt::format("pictures/train/{}/a.png", name), picture(9));
  }
  works(
      "hearth train tiny.yaml --out run data.kind=folder data.path=pictures model.num_classes=3 "
      "train.steps=1");
  const std::string report = get("run/report.html");
  for (const char* name : {"dark", "gray", "light"}) {
    EXPECT_EQ(count_of(report, fmt::format("alt='{}'", name)), 12U) << name;
  }
}

TEST_F(Verbs, PredictAgreesWithTheReport) {
  for (int i = 0; i < 12; ++i) {
    put(fmt::format("pictures/train/dark/{}.png", i), picture(static_cast<uint8_t>(5 * i)));
    put(fmt::format("pictures/train/light/{}.png", i), picture(static_cast<uint8_t>(250 - 5 * i)));
  }
  put("pictures/test/dark/a.png", picture(20));
  put("pictures/test/light/b.png", picture(180));
  works(
      "hearth train tiny.yaml --out run data.kind=folder data.path=pictures model.num_classes=2 "
      "model.dropout=0 data.std=[0.25] train.steps=40 train.eval_every=40 train.checkpoint_every=40 "
      "train.accumulate=2 train.ema=0.5");
  auto lines = lines_of(works("hearth predict run pictures/test/dark/a.png pictures/test/light/b.png"));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines.back(), "weights: run/best.safetensors");
  lines.pop_back();
  EXPECT_THAT(lines[0], ContainsRegex("^pictures/test/dark/a.png: dark [0-9.]+%, light [0-9.]+%$"));
  EXPECT_THAT(lines[1], ContainsRegex("^pictures/test/light/b.png: light [0-9.]+%, dark [0-9.]+%$"));
  // One evaluation: the best weights are the last, which the report shows.
  const std::string report = get("run/report.html");
  for (const std::string& line : lines) {
    const size_t name = line.find(": ") + 2;
    const size_t percent = line.find(' ', name) + 1;
    const double shown = std::stod(line.substr(percent));
    const std::string caption = fmt::format("{} {:.0f}%</div>", line.substr(name, percent - 1 - name), shown);
    EXPECT_EQ(count_of(report, caption), 1U) << caption;
  }
}

TEST_F(Verbs, LsAndCpAndValidate) {
  EXPECT_THAT(works("hearth ls"), AllOf(HasSubstr("  demo "), HasSubstr("  resnet18 "), HasSubstr("--keys")));
  EXPECT_THAT(works("hearth ls --keys"), AllOf(HasSubstr("  train.batch "), HasSubstr("  optimizer.lr ")));
  EXPECT_THAT(works("hearth ls --keys --markdown"),
              AllOf(HasSubstr("\n## `train`\n\n| key | default | meaning |\n"),
                    HasSubstr("\n| `optimizer.lr` | `0.05` | Learning rate |\n"),
                    HasSubstr("\n| `learning_rate` | `optimizer.lr` |\n")));
  refused("hearth ls --markdown", {"--markdown requires --keys"});
  EXPECT_EQ(works("hearth cp demo mine.yaml"), "wrote mine.yaml\n");
  EXPECT_EQ(get("mine.yaml"), read_file(fs::path(kSourceDir) / "recipes/demo.yaml"));
  const std::string out = works("hearth validate mine.yaml data.count=40 data.val_count=20");
  EXPECT_THAT(out, AllOf(HasSubstr("train: 40 images of 32x32x3, 10 classes"),
                         HasSubstr("test: 20 images of 32x32x3, 10 classes"), HasSubstr("  peak "),
                         HasSubstr("the recipe is well-formed")));
}

TEST_F(Verbs, PlanAddsUp) {
  const Json plan = Json::parse(works("hearth plan tiny.yaml --json"));
  EXPECT_EQ(plan.at("batch"), 8);
  EXPECT_EQ(plan.at("parameters"), 192 * 16 + 16 + 16 + 16 + 16 * 10 + 10);
  EXPECT_GE(plan.at("arena_bytes").get<int64_t>(), plan.at("bound_bytes").get<int64_t>());
  EXPECT_EQ(plan.at("peak_bytes").get<int64_t>(),
            plan.at("weight_bytes").get<int64_t>() + plan.at("optimizer_bytes").get<int64_t>() +
                plan.at("arena_bytes").get<int64_t>() + plan.at("staging_bytes").get<int64_t>());
  EXPECT_THAT(get("plan.svg"), AllOf(HasSubstr("<svg"), HasSubstr("</svg>")));
  const std::string table = works("hearth plan tiny.yaml --memory 1MiB --svg other.svg");
  EXPECT_THAT(table, AllOf(HasSubstr("mlp at micro-batch 8, fp32"), HasSubstr("arena lower bound"),
                           ContainsRegex("largest micro-batch within 1[.0]* MiB: [1-9][0-9]* "),
                           HasSubstr("fastest plan for micro-batch 8: unchanged")));
  EXPECT_TRUE(has("other.svg"));
  EXPECT_THAT(
      works("hearth plan tiny.yaml --memory 1KiB"),
      AllOf(HasSubstr("batch size 1 does not fit"), HasSubstr("does not fit 1.00 KiB, even with recompute")));
  const Json fitting = Json::parse(works("hearth plan tiny.yaml --memory 1MiB --json"));
  EXPECT_THAT(table, HasSubstr(fmt::format(": {} (peak", fitting.at("largest_batch").get<int64_t>())));
  EXPECT_LE(fitting.at("largest_batch_peak_bytes").get<int64_t>(), 1 << 20);
  EXPECT_EQ(fitting.at("fit").at("way"), "unchanged");
  EXPECT_LE(fitting.at("fit").at("peak_bytes").get<int64_t>(), 1 << 20);
  const Json tight = Json::parse(works("hearth plan tiny.yaml --memory 1KiB --json"));
  EXPECT_EQ(tight.at("largest_batch"), 0);
  EXPECT_TRUE(tight.at("fit").is_null());
}

TEST_F(Verbs, DumpAndOps) {
  const std::string list = works("hearth dump --list");
  EXPECT_THAT(list, AllOf(HasSubstr("  autocast "), HasSubstr("  backward "), HasSubstr("  recompute ")));
  const std::string before = works("hearth dump tiny.yaml --after=autocast");
  const std::string after = works("hearth dump tiny.yaml --after=backward");
  EXPECT_THAT(before, AllOf(HasSubstr("softmax_cross_entropy("), testing::Not(HasSubstr("sgd_update"))));
  EXPECT_THAT(after, AllOf(HasSubstr("softmax_cross_entropy_grad("), HasSubstr("sgd_update(")));
  EXPECT_THAT(works("hearth ops"),
              AllOf(HasSubstr("  matmul "), HasSubstr("  conv2d "), HasSubstr("gradient"),
                    HasSubstr("    inputs: a, b, bias?, residual?\n")));
}

TEST_F(Verbs, PackWritesOffsetsThatDoNotOverlap) {
  put("buffers.csv", "id,lower,upper,size\na,0,2,40\nb,1,3,60\nc,2,4,40\nd,3,5,10\n");
  EXPECT_THAT(works("hearth pack buffers.csv --out packed.csv"),
              HasSubstr("height 100  bound 100  gap 0.000%"));
  refused("hearth pack buffers.csv --capacity 99", {"buffers.csv", "99", "100"});
  const auto rows = lines_of(get("packed.csv"));
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_EQ(rows[0], "id,lower,upper,size,offset");
  struct Row {
    long lower = 0, upper = 0, size = 0, offset = 0;
  };
  std::vector<Row> buffers;
  for (size_t i = 1; i < rows.size(); ++i) {
    Row row;
    ASSERT_EQ(
        std::sscanf(rows[i].c_str() + 2, "%ld,%ld,%ld,%ld", &row.lower, &row.upper, &row.size, &row.offset),
        4);
    for (const Row& other : buffers) {
      const bool apart_in_time = row.upper <= other.lower || other.upper <= row.lower;
      EXPECT_TRUE(apart_in_time || row.offset + row.size <= other.offset ||
                  other.offset + other.size <= row.offset);
    }
    EXPECT_LE(row.offset + row.size, 100);
    buffers.push_back(row);
  }
}

TEST_F(Verbs, BenchProfilesEachOp) {
  const std::string out = works("hearth bench mlp-b64-fp32 --steps 2 --threads 1 --profile");
  EXPECT_THAT(out, AllOf(HasSubstr("matmul"), HasSubstr("sgd_update")));
  const Json result = Json::parse(lines_of(out).back());
  EXPECT_EQ(result.at("case"), "mlp-b64-fp32");
  EXPECT_EQ(result.at("step_seconds").size(), 2U);
  EXPECT_GT(result.at("step_seconds")[0].get<double>(), 0);
  EXPECT_GT(result.at("peak_rss_bytes").get<int64_t>(), 1 << 20);
}

TEST_F(Verbs, BenchTimesWhatProcessesTellOneAnother) {
  const Json result = Json::parse(works("hearth bench comm --ranks 3 --min 4KiB --max 16KiB --json"));
  EXPECT_GT(result.at("copy_bytes_per_second").get<double>(), 0);
  std::string found;
  for (const Json& timing : result.at("timings")) {
    found +=
        fmt::format("{} {}, ", timing.at("collective").get<std::string>(), timing.at("bytes").get<int64_t>());
    EXPECT_GT(timing.at("seconds").get<double>(), 0);
  }
  EXPECT_EQ(found,
            "all_reduce 4096, all_reduce 16384, reduce_scatter 4096, reduce_scatter 16384, all_gather 4096, "
            "all_gather 16384, send 4096, send 16384, ");
  EXPECT_THAT(works("hearth bench comm --min 64KiB --max 64KiB --wire bf16"),
              AllOf(HasSubstr("2 processes"), ContainsRegex("all_reduce +65536 +[0-9.]+ ")));
}

TEST_F(Verbs, BenchModelsACardThatIsNotThere) {
  const std::string text = works("hearth bench llama15m-b8-bf16 --model-gpu rx7900xtx");
  EXPECT_THAT(text,
              AllOf(HasSubstr("a model, not a measurement"), HasSubstr("tokens/s"), HasSubstr("MFU"),
                    ContainsRegex("\nexpected: [0-9.]+ to [0-9.]+ ms per step, [0-9]+ to [0-9]+ tokens/s"),
                    HasSubstr("ROCm issue 5725")));
  const std::string images =
      works("hearth bench recipes/mnist-mlp.yaml --model-gpu rx7900xt train.accumulate=2");
  EXPECT_THAT(images, AllOf(HasSubstr("images/s"), HasSubstr(" zero"), HasSubstr(" accumulate")));
}

TEST_F(Verbs, AFormerNameOfAFlagSaysThePresentOne) {
  const Result former = shell("hearth bench llama15m-b8-bf16 --model-card rx7900xtx");
  EXPECT_EQ(former.code, 0) << former.err;
  EXPECT_EQ(former.err, "--model-card is now --model-gpu\n");
  EXPECT_EQ(former.out, works("hearth bench llama15m-b8-bf16 --model-gpu rx7900xtx"));
}

TEST_F(Verbs, BenchSimulatesGpusThatAreNotThere) {
  const auto simulated = [&](const std::string& links) {
    return works("hearth bench resnet18-b64-bf16 --model-gpu rx7900xt --workers 2 " + links);
  };
  const auto scaling = [&](const std::string& links) {
    const std::string out = simulated(links);
    const Json json = Json::parse(out.substr(out.rfind("\n{") + 1));
    EXPECT_TRUE(json.at("simulated"));
    EXPECT_EQ(json.at("samples_per_step"), 128);
    return json.at("scaling").get<double>();
  };
  EXPECT_THAT(simulated("--link 6.5"), AllOf(HasSubstr("simulated, not measured"),
                                             HasSubstr("6.5 GB/s each way"), HasSubstr("exposed")));
  const double fast = scaling("--link 24 --sums 24"), slow = scaling("--link 6.5"),
               network = scaling("--network 1");
  EXPECT_LT(fast, 2);
  EXPECT_GT(fast, slow);
  EXPECT_GT(slow, network);
}

TEST_F(Verbs, BenchRunsOnACard) {
  const auto bench = [&](const std::string& name) {
    const std::string out = works("hearth bench " + name + " --device emulated --tiny --steps 1 --threads 1");
    EXPECT_THAT(out, HasSubstr("on emulated GPU 0"));
    Json result = Json::parse(lines_of(out).back());
    EXPECT_EQ(result.at("case"), name);
    EXPECT_EQ(result.at("gpu"), "emulated GPU 0");
    EXPECT_EQ(result.at("step_seconds").size(), 1U);
    EXPECT_GT(result.at("step_seconds")[0].get<double>(), 0) << name;
    return result;
  };
  const auto number = [](const Json& result, const char* key) { return result.at(key).get<int64_t>(); };

  const Json full = bench("llama1b-b4-bf16"), lora = bench("llama1b_lora-b4-bf16"),
             qlora = bench("llama1b_qlora-b4-bf16");
  EXPECT_EQ(number(full, "samples_per_step"), 2 * 31);
  EXPECT_GT(number(full, "flops_per_step"), number(lora, "flops_per_step"));
  EXPECT_GT(number(full, "gpu_bytes"), number(lora, "gpu_bytes"));
  EXPECT_GT(number(lora, "gpu_bytes"), number(qlora, "gpu_bytes"));
  for (const char* images : {"resnet50-b128-bf16", "conv_stack-b32-bf16"})
    EXPECT_EQ(number(bench(images), "samples_per_step"), 2) << images;

  constexpr int64_t kTokens = 64, kHidden = 64, kWide = 128, kVocab = 320, kHeads = 4, kKvHeads = 2;
  for (const auto& [kernel, columns] : {std::pair{"matmul_q", kHidden},
                                        {"matmul_kv", kHidden / kHeads * kKvHeads},
                                        {"matmul_up", kWide},
                                        {"matmul_down", kWide},
                                        {"matmul_head", kVocab},
                                        {"matmul_up_dx", kWide},
                                        {"matmul_up_dw", kWide}}) {
    EXPECT_EQ(number(bench(fmt::format("{}-b4-bf16", kernel)), "flops_per_step"),
              2 * kTokens * kHidden * columns)
        << kernel;
  }
  const int64_t forward = number(bench("attention-b4-bf16"), "flops_per_step");
  EXPECT_EQ(2 * number(bench("attention_grad-b4-bf16"), "flops_per_step"), 5 * forward);
}

using SlowVerbs = Verbs;

TEST_F(SlowVerbs, BenchTrainsALanguageModelAndLetsItAnswer) {
  const auto bench = [&](const char* name) {
    const Json result = Json::parse(works(fmt::format("hearth bench {} --steps 1 --threads 2", name)));
    EXPECT_EQ(result.at("case"), name);
    EXPECT_EQ(result.at("step_seconds").size(), 1U);
    return result.at("flops_per_step").get<double>();
  };
  EXPECT_GT(bench("llama15m-b8-fp32"), 1e11);
  EXPECT_EQ(bench("llama15m_answer-b1-fp32"), 0);
}

TEST_F(Verbs, HelpNamesEveryVerb) {
  const std::string help = works("hearth --help");
  for (const char* verb :
       {"train", "eval", "predict", "plan", "dump", "ops", "pack", "bench", "ls", "cp", "validate"}) {
    EXPECT_THAT(help, ContainsRegex(fmt::format("\n +{} ", verb)));
    EXPECT_THAT(works(fmt::format("hearth {} --help", verb)), HasSubstr("--help"));
  }
  EXPECT_EQ(works("hearth --version"), "hearth 0.1.0\n");
}

TEST_F(Verbs, LowPrecisionsTrainToNearlyTheSameLoss) {
  const auto last_loss = [&](const std::string& precision) {
    const std::string run = "run-" + precision;
    works(
        fmt::format("hearth train tiny.yaml --out {} train.steps=60 train.checkpoint_every=60 "
                    "precision={}",
                    run, precision));
    double loss = 0;
    for (const std::string& line : lines_of(get(run + "/trainer_log.jsonl")))
      loss = Json::parse(line).value("loss", loss);
    return loss;
  };
  const double wanted = last_loss("fp32");
  const double bf16 = last_loss("bf16");
  EXPECT_NE(bf16, wanted);
  EXPECT_NEAR(bf16, wanted, 0.02 * wanted);
  EXPECT_NEAR(last_loss("fp16"), wanted, 0.02 * wanted);
}

}  // namespace
}  // namespace hearth
