#include "recipe/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "recipe/recipe_file.h"
#include "run/from_recipe.h"

namespace hearth::recipe {
namespace {

using testing::HasSubstr;

/// What parse_recipe says against a recipe, or "".
std::string fault(const std::string& yaml, std::vector<std::string> overrides = {}) {
  try {
    run::parse_recipe(yaml, "r.yaml", overrides);
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}

TEST(Recipe, MistakesAreNamed) {
  EXPECT_EQ(fault("seed: 1\ntrain:\n  bacth: 3\n"),
            "expected a key of a recipe, got \"train.bacth\" in r.yaml:3; did you mean 'train.batch'?");
  EXPECT_EQ(fault("train: {batch: many}"),
            "expected a whole number from 1 to 1048576 for train.batch, got 'many' in r.yaml:1; try 32");
  EXPECT_THAT(fault("model: {name: resnet19}"), HasSubstr("did you mean 'resnet18'?"));
  EXPECT_THAT(fault("", {"train.batch"}), HasSubstr("expected an override like"));
  EXPECT_THAT(fault("seed: 1\ndata: {kind: idx}"), HasSubstr("expected data.path"));
  EXPECT_THAT(fault("seed: 1\ndata: {kind: idx}"), HasSubstr("in r.yaml:2"));
  EXPECT_THAT(fault("a: ["), HasSubstr("in r.yaml:"));
  EXPECT_THAT(fault("seed: 1\nseed: 2\n"), HasSubstr("'seed' is set twice, the second time in r.yaml:2"));
  EXPECT_THAT(fault("lr: 1\noptimizer:\n  lr: 2\n"), HasSubstr("'optimizer.lr' is set twice"));
  EXPECT_THAT(fault("init: [a, b]"), HasSubstr("expected one word or path for init, got a list of 2"));
  std::string widths = "4";
  for (int i = 0; i < 2000; ++i) widths += ", 4";
  EXPECT_THAT(fault(fmt::format("model: {{hidden: [{}]}}", widths)), HasSubstr("model.hidden, got 2001 in"));
  EXPECT_THAT(fault("model: {hidden: [-5]}"), HasSubstr("model.hidden, got -5 in r.yaml:1"));
  EXPECT_EQ(fault("", {"train.batch=7"}), "");
}

TEST(Recipe, ALanguageModelThatIsMissingIsNamed) {
  const std::string lora = "adapter: {name: lora}\ndata: {path: data.jsonl}\n";
  EXPECT_EQ(fault(lora),
            "r.yaml:1: the adapter needs a language model, but model is not set; set model=FOLDER, a Hugging "
            "Face folder");
  EXPECT_THAT(fault("", {"adapter.path=runs/lora"}),
              HasSubstr("the override \"adapter.path=runs/lora\": the adapter"));
  EXPECT_EQ(fault(lora, {"model=./folder"}), "");
  EXPECT_EQ(fault(lora, {"train.objective=flow", "data.kind=captions"}), "");
  for (const std::string file : {"chats.jsonl", "notes.txt", "records.json"}) {
    EXPECT_EQ(fault(fmt::format("seed: 1\ndata: {{path: {}}}\n", file)),
              fmt::format(
                  "r.yaml:2: data.path={} needs a language model, but model is not set; set model=FOLDER, a "
                  "Hugging Face folder",
                  file));
    EXPECT_EQ(fault("data: {path: " + file + "}", {"model=./folder"}), "");
  }
  EXPECT_THAT(fault("data: {path: images}"), HasSubstr("set data.kind=folder"));
}

TEST(Recipe, TheKeyThatWasMeantIsFoundInOtherSectionsToo) {
  const std::pair<const char*, const char*> cases[] = {
      {"bacth: 3", "'train.batch'"},           {"batch: 3", "'train.batch'"},
      {"batchsize: 3", "'train.batch'"},       {"optimizer: {batch: 3}", "'train.batch'"},
      {"data: {image-sise: 3}", "image_size"}, {"trian: {epochs: 3}", "'train.epochs'"},
      {"optimizr: {lr: 3}", "'optimizer.lr'"}, {"presicion: bf16", "'precision'"}};
  for (const auto& [yaml, meant] : cases) EXPECT_THAT(fault(yaml), HasSubstr(meant)) << yaml;
  EXPECT_THAT(fault("completely_unrelated: 3"), HasSubstr("try hearth ls --keys"));
  EXPECT_THAT(fault("nothing_at_all: {}"), HasSubstr("\"nothing_at_all\" in r.yaml:1"));
}

TEST(Recipe, ASectionIsNoValue) {
  EXPECT_EQ(fault("seed: 1\ntrain: 5\n"),
            "expected the keys of the section 'train', got '5' in r.yaml:2; try train: {steps: 0}");
  EXPECT_THAT(fault("passes: [a]"), HasSubstr("section 'passes'"));
  EXPECT_THAT(fault("seed: {a: 1}"), HasSubstr("expected a value for 'seed'"));
  EXPECT_THAT(fault("", {"train=5"}), HasSubstr("section 'train'"));
  EXPECT_EQ(fault("train:\n"), "");
}

TEST(Recipe, NumbersStayInTheirRange) {
  const char* const refused[] = {"train: {batch: 0}",
                                 "train: {batch: 1e12}",
                                 "train: {batch: 1000000000000}",
                                 "train: {batch: 3.5}",
                                 "train: {steps: -1}",
                                 "train: {epochs: 0}",
                                 "train: {log_every: 0}",
                                 "train: {batch: 0x10}",
                                 "lr: nan",
                                 "lr: .nan",
                                 "lr: inf",
                                 "lr: .inf",
                                 "lr: -0.1",
                                 "lr: 1e400",
                                 "lr: ''",
                                 "lr:",
                                 "threads: -3",
                                 "threads: 1e3",
                                 "seed: -1",
                                 "seed: 18446744073709551616",
                                 "memory: nan",
                                 "memory: -1GiB",
                                 "memory: [1]",
                                 "memory: 1e300GiB",
                                 "model: {dropout: 1}",
                                 "model: {hidden: 5}",
                                 "model: {hidden: [1.5]}",
                                 "model: {num_classes: -1}",
                                 "data: {mean: [.nan]}",
                                 "data: {std: [inf]}",
                                 "data: {jitter: nan}",
                                 "data: {image_size: 0}",
                                 "train: {accumulate: 99999999999999999999}"};
  for (const char* yaml : refused) {
    EXPECT_THAT(fault(std::string("\n") + yaml),
                testing::MatchesRegex("expected .*, got .* in r.yaml:2; try .*"))
        << yaml;
  }
  EXPECT_EQ(run::parse_recipe("seed: 18446744073709551615", "r").seed, 18446744073709551615U);
  EXPECT_EQ(run::parse_recipe("lr: 1e-3", "r").optimizer.lr, 1e-3);
  EXPECT_EQ(run::parse_recipe("train: {batch: '8'}", "r").train.batch, 8);
}

TEST(Recipe, MeanAndStdHaveANumberForEachChannel) {
  EXPECT_EQ(fault("data:\n  mean: [0.1, 0.2]\n"),
            "expected 1 or 3 numbers for data.mean, one per channel, got 2 in r.yaml:2; try [0.5, 0.5, 0.5]");
  EXPECT_THAT(fault("data: {std: [1, 1, 1, 1]}"), HasSubstr("data.std, one per channel, got 4"));
  EXPECT_THAT(fault("data: {channels: 1, mean: [0.1, 0.2, 0.3]}"),
              HasSubstr("expected 1 number for data.mean"));
  EXPECT_THAT(fault("data: {mean: []}"), HasSubstr("got 0"));
  EXPECT_THAT(fault("data: {std: [0]}"), HasSubstr("above 0 for data.std, got 0"));
  EXPECT_THAT(fault("data: {channels: 2}"), HasSubstr("data.channels, got 2"));
  EXPECT_EQ(fault("data: {mean: [0.1, 0.2, 0.3], std: [2]}"), "");
}

TEST(Recipe, AnyTextSurvivesBeingWritten) {
  const std::string texts[] = {"plain",
                               "two words",
                               "quote\"d",
                               "apo'strophe",
                               "C:\\folder\\new",
                               "hash # in it",
                               "key: value",
                               "line\nbreak\r",
                               "tab\there",
                               "\xc3\xbc\xe2\x82\xac",
                               "\xf0\x9f\x94\xa5",
                               " edges ",
                               "- [x, {y}]",
                               "*a &b !c",
                               "null",
                               "~",
                               "true",
                               "\x01\x7f\x1b[0m",
                               "%d {} {{",
                               "\xef\xbf\xbf"};
  for (const std::string& text : texts) {
    Recipe recipe;
    recipe.data.path = text;
    recipe.init = text;
    recipe.passes.off = {text, "fuse_elementwise"};
    const Recipe again = run::parse_recipe(write_recipe(recipe), "r");
    EXPECT_EQ(again.data.path.string(), text);
    EXPECT_EQ(again.init, text);
    EXPECT_EQ(again.passes.off, recipe.passes.off);
  }
}

TEST(Recipe, NumbersSurviveBeingWritten) {
  Recipe recipe;
  recipe.optimizer.lr = 0.1 + 0.2;
  recipe.optimizer.eps = 5e-324;
  recipe.data.mean = {0.1F, 1e-30F, -7.25F};
  recipe.seed = 18446744073709551615U;
  recipe.model.hidden = {};
  const Recipe again = run::parse_recipe(write_recipe(recipe), "r");
  EXPECT_EQ(again.optimizer.lr, recipe.optimizer.lr);
  EXPECT_EQ(again.optimizer.eps, recipe.optimizer.eps);
  EXPECT_EQ(again.data.mean, recipe.data.mean);
  EXPECT_EQ(again.seed, recipe.seed);
  EXPECT_EQ(again.model.hidden, recipe.model.hidden);
}

TEST(Recipe, AnOverrideIsTakenAsItStands) {
  const std::string overrides[] = {"data.path=/a # b: [c", "data.kind=shapes",
                                   "init=", "model.hidden=[3, 4]"};
  const Recipe recipe = run::parse_recipe("init: x", "r", overrides);
  EXPECT_EQ(recipe.data.path.string(), "/a # b: [c");
  EXPECT_EQ(recipe.init, "");
  EXPECT_EQ(recipe.model.hidden, (std::vector<int64_t>{3, 4}));
  EXPECT_THAT(fault("", {"model.hidden=[3"}), HasSubstr("got 'end of"));
  EXPECT_THAT(fault("", {"train.batch=a\nb"}), HasSubstr("got 'a\\x0ab'"));
}

TEST(Recipe, BytesThatAreNoTextAreRefused) {
  const std::string refused[] = {"\x89PNG\r\n\x1a\n", "seed: 1\ninit: \"\xff\"",   "\xc0\x80",
                                 "\xe2\x82",          std::string("seed: 1\0", 8), "\x1f\x8b\x08",
                                 "init: \x7f"};
  for (const std::string& bytes : refused) EXPECT_THAT(fault(bytes), HasSubstr("expected text in UTF-8"));
  EXPECT_THAT(fault("seed: 1\ninit: \"\xff\""), HasSubstr("r.yaml:2"));
  EXPECT_THAT(fault("init: \"a\\0b\""), HasSubstr("expected one word or path"));
  EXPECT_THAT(fault("just words"), HasSubstr("expected keys like 'train:'"));
  EXPECT_THAT(fault("seed: 1\n---\nseed: 2\n"), HasSubstr("another one follows in r.yaml:2"));
  EXPECT_THAT(fault(", seed: 1\n"), HasSubstr("another one follows in r.yaml:1"));
  EXPECT_THAT(fault("train: {steps: 5}\n, batch: 3\n"), HasSubstr("r.yaml:2"));
}

TEST(Recipe, DeepNestingIsRefused) {
  const auto repeat = [](const std::string& text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  EXPECT_THAT(fault("a: " + repeat("[", 100000)), HasSubstr("opening brackets"));
  EXPECT_THAT(fault("init: \"" + repeat("]", 1000) + "\"\na: " + repeat("[", 100000)),
              HasSubstr("opening brackets"));
  EXPECT_THAT(fault("a: " + repeat("[']', ", 100000)), HasSubstr("opening brackets"));
  EXPECT_THAT(fault(repeat("- ", 100000)), HasSubstr("columns of indentation"));
  EXPECT_THAT(fault("seed: 1\n" + repeat("? ", 100000)), HasSubstr("r.yaml:2"));
  EXPECT_THAT(fault("a: " + repeat("{b: ", 200)), HasSubstr("expected YAML"));
  EXPECT_THAT(fault("a: &a [*a]"), HasSubstr("got \"a\""));
  EXPECT_THAT(fault("train: &a {steps: *a}"), HasSubstr("expected a value for 'train.steps'"));
  EXPECT_THAT(fault("model: {hidden: &a [*a]}"), HasSubstr("expected a list of finite numbers"));
  EXPECT_THAT(fault(std::string(2 << 20, ' ')), HasSubstr("1 MiB"));
}

/// Expects each name of an enum to stand for its value under a key, and the value to be written as that name.
template <typename Enum, typename Get>
void expect_names(const std::string& key, Get get, std::vector<std::string> overrides = {}) {
  for (size_t i = 0; i < kNames<Enum>.size(); ++i) {
    const std::string name(kNames<Enum>[i]);
    std::vector<std::string> all = overrides;
    all.push_back(key + "=" + name);
    const Recipe recipe = run::parse_recipe("", "r", all);
    EXPECT_EQ(get(recipe), value_of<Enum>(i)) << key << " " << name;
    EXPECT_EQ(get(run::parse_recipe(write_recipe(recipe), "r")), value_of<Enum>(i)) << key << " " << name;
    const std::string leaf = key.substr(key.find('.') + 1);
    EXPECT_THAT(write_recipe(recipe), HasSubstr(fmt::format("{}: \"{}\"\n", leaf, name))) << key;
  }
}

TEST(Recipe, EnumsAreReadAndWrittenByTheirNames) {
  expect_names<Parallel>("parallel", [](const Recipe& r) { return r.parallel; });
  expect_names<SelfTestMode>("self_test", [](const Recipe& r) { return r.self_test; });
  expect_names<RecordMode>("record", [](const Recipe& r) { return r.record; });
  expect_names<DType>("precision", [](const Recipe& r) { return r.precision; });
  expect_names<SavedActivations>("saved_activations", [](const Recipe& r) { return r.saved_activations; });
  expect_names<Transport>("exchange.transport", [](const Recipe& r) { return r.exchange.transport; });
  expect_names<Compress>("exchange.compress", [](const Recipe& r) { return r.exchange.compress; });
  expect_names<MatmulPrecision>("matmul_precision", [](const Recipe& r) { return r.matmul_precision; },
                                {"model.path=x", "data.path=y"});
  expect_names<AdapterKind>("adapter.name", [](const Recipe& r) { return r.adapter.name; },
                            {"model.path=x", "data.path=y"});
  expect_names<BadRecords>("data.bad_records", [](const Recipe& r) { return r.data.bad_records; });
  expect_names<Overlong>("data.overlong", [](const Recipe& r) { return r.data.overlong; });
  expect_names<RecordFormat>("data.format", [](const Recipe& r) { return r.data.format; });
  expect_names<Document>("data.document", [](const Recipe& r) { return r.data.document; });
  expect_names<ScheduleKind>("schedule.name", [](const Recipe& r) { return r.schedule.name; });
  expect_names<Objective>("train.objective", [](const Recipe& r) { return r.train.objective; },
                          {"model.path=x", "data.path=y", "data.kind=shapes"});
}

TEST(Recipe, LoggersAreAListOfNames) {
  const auto loggers = [](const std::string& value) {
    const Recipe recipe = run::parse_recipe("", "test", std::vector<std::string>{"log.to=" + value});
    EXPECT_EQ(run::parse_recipe(write_recipe(recipe), "again").log.to, recipe.log.to);
    return recipe.log.to;
  };
  using enum Logger;
  EXPECT_EQ(run::parse_recipe("", "test").log.to, std::vector{tensorboard});
  EXPECT_EQ(loggers("[csv, mlflow, csv]"), (std::vector{csv, mlflow}));
  EXPECT_EQ(loggers("wandb"), std::vector{wandb});
  EXPECT_EQ(loggers("[]"), std::vector<Logger>());
  EXPECT_THAT(fault("", {"log.to=[csv, mlfow]"}), HasSubstr("did you mean 'mlflow'?"));
  EXPECT_THAT(fault("", {"log.webhook=example.org"}), HasSubstr("log.webhook is no URL"));
  EXPECT_EQ(fault("", {"log.webhook=env:HOOK"}), "");
}

TEST(Recipe, MatmulsOfEightBitsAreForTransformers) {
  const std::string fp8 = "precision.matmul: fp8\n", text = "model: {path: x}\ndata: {path: y.txt}\n";
  EXPECT_EQ(fault(fp8 + text), "");
  EXPECT_THAT(fault(fp8), HasSubstr("r.yaml:1: matmul_precision=fp8 is for transformers, but the model is"));
  EXPECT_THAT(fault(fp8 + text + "precision: fp16\n"), HasSubstr("set precision=bf16"));
  EXPECT_THAT(fault(fp8 + text + "adapter: {name: lora, quantize: nf4}\n"),
              HasSubstr("adapter.quantize is nf4; remove one of the two"));
}

TEST(Recipe, AnOverrideRemovesTheTeacherWithItsKeys) {
  const std::string yaml = "distill: {from: teacher, weight: 0.9, temperature: 4}";
  const std::vector<std::string> removed = {"distill.from="};
  const Distill distill = run::parse_recipe(yaml, "r", removed).distill;
  EXPECT_EQ(distill.weight, Distill().weight);
  EXPECT_EQ(distill.temperature, Distill().temperature);
  EXPECT_THAT(fault(yaml, {"distill.from=", "distill.weight=0.8"}),
              HasSubstr("distill.weight has no effect without a teacher"));
}

TEST(Recipe, NamesComeFromRegistries) {
  const std::string keys[] = {"model.name", "adapter.quantize", "data.kind", "optimizer.name"};
  for (const std::string& key : keys) {
    EXPECT_THAT(fault("", {key + "=never_heard_of"}), HasSubstr(run::recipe_choices().of(key).back())) << key;
    const std::string any[] = {"data.kind=shapes", "data.path=x", key + "=never_heard_of"};
    EXPECT_NO_THROW(parse_recipe("", "r", {}, any)) << key << " takes any text without choices";
  }
  EXPECT_EQ(fault(write_recipe(Recipe())), "") << "defaults are names that there are";
  EXPECT_THAT(describe_keys(run::recipe_choices()), HasSubstr("mlp, simplecnn"));
}

TEST(Recipe, NamesACardAndWhatStaysFreeOnIt) {
  const Recipe recipe = run::parse_recipe("device: gpu:0000:03:00.0\nreserve: 1GiB\n", "r.yaml");
  const Recipe again = run::parse_recipe(write_recipe(recipe), "again.yaml");
  EXPECT_EQ(again.device, "gpu:0000:03:00.0");
  const engine::EngineOptions options = run::engine_options(tasks::Job(again));
  EXPECT_EQ(options.backend, exec::Backend::gpu);
  EXPECT_EQ(options.gpu.device, "gpu:0000:03:00.0");
  EXPECT_EQ(options.gpu.reserve_bytes, int64_t{1} << 30);
  EXPECT_EQ(run::engine_options(tasks::Job(run::parse_recipe("", "r.yaml"))).backend, exec::Backend::cpu);
  EXPECT_EQ(
      run::engine_options(tasks::Job(run::parse_recipe("device: emulated", "r.yaml"))).gpu.reserve_bytes, 0);
  EXPECT_THAT(fault("device: gpu:first"),
              HasSubstr("expected cpu, gpu, gpu:0, gpu:0000:03:00.0 or emulated"));
}

}  // namespace
}  // namespace hearth::recipe
