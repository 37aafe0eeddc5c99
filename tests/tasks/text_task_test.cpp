#include "tasks/language/text_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "io/run_log.h"
#include "run/from_recipe.h"
#include "run/stopped_run.h"
#include "run/trainer.h"
#include "tasks/language/language_model.h"
#include "tasks/language/language_recipe.h"
#include "temporary_folder.h"
#include "tiny_language_model.h"

namespace hearth::tasks {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int32_t kImEnd = 99;

TextTask task_of(const recipe::Recipe& recipe) { return TextTask(Job(recipe)); }

class Text : public testing::Test {
 protected:
  Text() {
    write_tiny_model(at("model"));
    std::string chats;
    for (int i = 0; i < 40; ++i)
      chats += chat_line("n" + std::to_string(i), std::string(static_cast<size_t>(1 + i * 7 % 23), 'a'));
    put("chat.jsonl", chats);
  }

  fs::path at(const std::string& name) const { return folder_.path() / name; }
  void put(const std::string& name, const std::string& text) const { write_file_atomically(at(name), text); }

  /// A recipe of the tiny model on a file, with overrides.
  recipe::Recipe recipe(const std::string& file, std::vector<std::string> overrides = {}) const {
    const std::string yaml = fmt::format(
        "model: {{config: {}}}\n"
        "data: {{path: {}, cache: {}, context: 64, val_share: 0.2}}\n"
        "train: {{batch: 2, log_every: 1}}\n"
        "optimizer: {{name: sgd, lr: 0.5, momentum: 0}}\nthreads: 1\nseed: 3\n",
        at("model/config.json").string(), at(file).string(), at("cache").string());
    return run::parse_recipe(yaml, "test", overrides);
  }
  std::string fault(const recipe::Recipe& recipe) const {
    try {
      TextTask task = task_of(recipe);
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_{run::quick_folder()};
};

char character(int32_t id) { return id == 95 ? '|' : id < 95 ? static_cast<char>(id + 32) : '#'; }

constexpr const char* kInputs[] = {"tokens", "labels", "positions", "starts"};

const int32_t* input(const engine::MicroBatch& batch, size_t index) {
  return batch.array<int32_t>(kInputs[index]);
}

/// The documents of a micro-batch with their tokens, those after a counted label in capitals; special tokens
/// are '#', line ends '|'. Padding is left out.
std::vector<std::string> documents(const engine::MicroBatch& batch, int64_t length) {
  std::vector<std::string> found;
  for (int64_t i = 0; i < batch.num_rows * length; ++i) {
    if (input(batch, 2)[i] == 0) found.emplace_back();
    found.back() += character(input(batch, 0)[i]);
    const int32_t label = input(batch, 1)[i];
    EXPECT_TRUE(label < 0 || label == input(batch, 0)[i + 1]);
    if (i > 0 && input(batch, 1)[i - 1] >= 0)
      found.back().back() = static_cast<char>(std::toupper(found.back().back()));
  }
  std::erase_if(found, [](const std::string& text) { return text.find_first_not_of('#') == text.npos; });
  return found;
}

/// The documents of `num_rows` rows in their order.
std::vector<std::string> documents_from(const TextTask& task, const data::LoaderPosition& from,
                                        int64_t num_rows) {
  const auto stream = task.open(from);
  std::vector<std::string> all;
  for (int64_t rows = 0; rows < num_rows;) {
    const engine::MicroBatch batch = stream->next();
    rows += batch.num_rows;
    for (std::string& one : documents(batch, batch.row_length > 0 ? batch.row_length : 64)) {
      one.erase(one.find_last_not_of('#') + 2 > one.size() ? one.size() : one.find_last_not_of('#') + 1);
      all.push_back(std::move(one));
    }
  }
  return all;
}

std::vector<std::string> epoch_of(const TextTask& task, int64_t epoch) {
  return documents_from(task, {.seed = 3, .epoch = epoch}, task.num_rows());
}

TEST_F(Text, TextsBeyondTheModelsPositionsAreWarnedOf) {
  // The tiny model has 512 positions.
  put("long.txt", std::string(4000, 'a'));
  const std::string wide = "data.context=600";
  EXPECT_EQ(task_of(recipe("chat.jsonl", {wide})).warning(), "");
  EXPECT_EQ(task_of(recipe("long.txt")).warning(), "");
  EXPECT_THAT(task_of(recipe("long.txt", {wide})).warning(), HasSubstr("max_position_embeddings 512"));
}

TEST_F(Text, EverySampleOnceAnEpochInAnOrderOfItsOwn) {
  for (const char* packing : {"data.packing=true", "data.packing=false"}) {
    const TextTask task = task_of(recipe("chat.jsonl", {packing}));
    const auto first = epoch_of(task, 0);
    const auto second = epoch_of(task, 1);
    const std::set<std::string> different(first.begin(), first.end());
    EXPECT_EQ(first.size(), 32U) << packing;
    EXPECT_EQ(different.size(), 32U) << packing;
    EXPECT_EQ(different, std::set<std::string>(second.begin(), second.end())) << packing;
    EXPECT_NE(first, second) << packing;
    EXPECT_EQ(first, epoch_of(task, 0)) << packing;
  }
}

TEST_F(Text, AChangedOrderStillHasEverySampleOnceAnEpoch) {
  for (const char* packing : {"data.packing=true", "data.packing=false"}) {
    const TextTask task = task_of(recipe("chat.jsonl", {packing, "train.batch=1"}));
    const int64_t seen = task.num_rows() / 4, left = task.num_rows() - seen;
    data::LoaderPosition position{.seed = 3, .sample = seen};
    const auto unchanged = documents_from(task, position, left);
    data::change_order(position);
    const auto changed = documents_from(task, position, left);
    EXPECT_NE(changed, unchanged) << packing;
    EXPECT_THAT(changed, testing::UnorderedElementsAreArray(unchanged)) << packing;
  }
}

TEST_F(Text, TheLossCountsWhatTheAssistantSays) {
  put("two.jsonl", chat_line("hi", "yes") + chat_line("b", "no"));
  std::vector<std::string> one_by_one = {"data.packing=false", "data.shuffle=false", "data.val_share=0.5"};
  EXPECT_THAT(epoch_of(task_of(recipe("two.jsonl", one_by_one)), 0),
              ElementsAre("#user|hi#|#assistant|YES#|"));
  one_by_one.emplace_back("data.train_on_prompt=true");
  EXPECT_THAT(epoch_of(task_of(recipe("two.jsonl", one_by_one)), 0),
              ElementsAre("#USER|HI#|#ASSISTANT|YES#|"));
}

TEST_F(Text, EndOfTurnIsTrained) {
  put("two.jsonl", chat_line("hi", "yes") + chat_line("b", "no"));
  const TextTask task =
      task_of(recipe("two.jsonl", {"data.packing=false", "data.shuffle=false", "data.val_share=0.5"}));
  const auto stream = task.open({.seed = 3});
  const engine::MicroBatch batch = stream->next();
  std::vector<int32_t> counted;
  for (int64_t i = 0; i < batch.row_length; ++i) {
    if (input(batch, 1)[i] >= 0) counted.push_back(input(batch, 1)[i]);
  }
  EXPECT_THAT(counted, ElementsAre('y' - 32, 'e' - 32, 's' - 32, kImEnd));
  EXPECT_EQ(task.num_samples({.seed = 3}, 1), 4);
}

TEST_F(Text, RowsWithoutPackingAreOfFewLengths) {
  const TextTask task = task_of(recipe("chat.jsonl", {"data.packing=false"}));
  EXPECT_THAT(task.row_lengths(), ElementsAre(64, 32));
  EXPECT_EQ(task.num_rows(), 32);
  const auto stream = task.open({.seed = 3});
  std::set<int64_t> seen;
  for (int i = 0; i < 16; ++i) seen.insert(stream->next().row_length);
  EXPECT_EQ(seen, (std::set<int64_t>{32, 64}));
}

TEST_F(Text, OverlongSamplesAreCountedAndCutOrDropped) {
  std::string chats = chat_line("a", std::string(100, 'b'));
  for (int i = 0; i < 9; ++i) chats += chat_line("a", "b");
  put("long.jsonl", chats + chat_line(std::string(100, 'a'), "b") + chat_line("a", "b"));
  EXPECT_THAT(task_of(recipe("long.jsonl")).describe(), HasSubstr("filled, 1 cut)"));
  EXPECT_THAT(task_of(recipe("long.jsonl", {"data.overlong=drop"})).describe(),
              HasSubstr("filled, 1 too long and left out)"));
  EXPECT_THAT(
      fault(recipe("long.jsonl", {"data.overlong=refuse"})),
      testing::ContainsRegex("long.jsonl:11: the sample has [0-9]+ tokens, more than data.context=64"));
  const TextTask cut = task_of(recipe("long.jsonl", {"data.val_share=0.05"}));
  EXPECT_THAT(cut.describe(), HasSubstr("filled, 1 cut, 1 without anything to train on left out)"));
}

TEST_F(Text, PlainTextIsOneStreamAndEveryTokenIsPredicted) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += "line " + std::to_string(i) + "\n";
  put("text.txt", text);
  const recipe::Recipe plain = recipe("text.txt");
  EXPECT_FALSE(has_documents(plain));
  const TextTask task = task_of(plain);
  const auto tokens = static_cast<int64_t>(text.size()) + 1;
  const auto kept = static_cast<int64_t>(static_cast<double>(tokens) * 0.8);
  EXPECT_EQ(task.num_rows(), (kept + 63) / 64);
  EXPECT_EQ(task.num_samples({.seed = 3}, task.num_rows()), kept - 1);
}

TEST_F(Text, DocumentsThatAreSplitLoseNoToken) {
  std::string lines;
  int64_t predicted = 0;
  for (int64_t i = 1; i <= 20; ++i) {
    lines += "{\"text\": \"" + std::string(static_cast<size_t>(10 * i), 'a') + "\"}\n";
    if (i <= 16) predicted += 10 * i;  // the last of them is </s>
  }
  put("documents.jsonl", lines);
  for (const char* packing : {"data.packing=true", "data.packing=false"}) {
    const TextTask task = task_of(recipe("documents.jsonl", {"data.overlong=split", packing}));
    EXPECT_EQ(task.num_samples({.seed = 3}, task.num_rows()), predicted) << packing;
  }
}

TEST_F(Text, TokensComeFromTheCache) {
  const auto files = [&] {
    std::set<fs::path> found;
    for (const auto& entry : fs::directory_iterator(at("cache"))) found.insert(entry.path());
    return found;
  };
  const std::string before = task_of(recipe("chat.jsonl")).describe();
  ASSERT_EQ(files().size(), 1U);
  const fs::path cached = *files().begin();
  const auto written = fs::last_write_time(cached);
  EXPECT_EQ(task_of(recipe("chat.jsonl")).describe(), before);
  EXPECT_EQ(fs::last_write_time(cached), written);
  EXPECT_NE(task_of(recipe("chat.jsonl", {"data.train_on_prompt=true"})).describe(), before);
  EXPECT_EQ(files().size(), 2U) << "other labels are other tokens";
  task_of(recipe("chat.jsonl", {"data.template=plain"}));
  EXPECT_EQ(files().size(), 3U);
  fs::resize_file(cached, fs::file_size(cached) - 8);
  EXPECT_EQ(task_of(recipe("chat.jsonl")).describe(), before) << "a damaged file is made again";
  put("chat.jsonl", chat_line("a", "b") + chat_line("c", "d"));
  task_of(recipe("chat.jsonl", {"data.val_share=0.5"}));
  EXPECT_EQ(files().size(), 4U);
}

TEST_F(Text, EveryFormatIsTaken) {
  put("records.jsonl",
      "{\"text\": \"plain\"}\n{\"prompt\": \"p\", \"completion\": \"c\"}\n"
      "{\"instruction\": \"i\", \"input\": \"\", \"output\": \"o\"}\n"
      "{\"conversations\": [{\"from\": \"human\", \"value\": \"h\"}, {\"from\": \"gpt\", \"value\": "
      "\"g\"}]}\n" +
          chat_line("u", "a") + "{\"frage\": \"p\", \"antwort\": \"c\"}\n");
  EXPECT_THAT(fault(recipe("records.jsonl")), HasSubstr("records.jsonl:6: "));
  put("own.jsonl", "{\"frage\": \"p\", \"antwort\": \"c\"}\n{\"frage\": \"q\", \"antwort\": \"d\"}\n");
  EXPECT_EQ(
      fault(recipe("own.jsonl", {"data.format=prompt_completion",
                                 "data.fields=[prompt=frage, completion=antwort]", "data.val_share=0.5"})),
      "");
}

TEST_F(Text, WhatCannotBeTrainedOn) {
  put("broken.jsonl", chat_line("a", "b") + "{\"messages\": [}\n" + chat_line("a", " "));
  EXPECT_THAT(fault(recipe("broken.jsonl")), HasSubstr("broken.jsonl:2: expected JSON"));
  EXPECT_THAT(fault(recipe("broken.jsonl")), HasSubstr("(and 1 more bad records)"));
  put("empty.jsonl", chat_line("a", "b") + chat_line("a", " "));
  EXPECT_THAT(fault(recipe("empty.jsonl")), HasSubstr("empty.jsonl:2: turn 2 (assistant) is empty"));
  put("two.jsonl", "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n");
  EXPECT_THAT(fault(recipe("two.jsonl")), HasSubstr("two.jsonl:1: expected a record with one answer"));
  EXPECT_THAT(fault(recipe("chat.jsonl", {"data.template=chatmal"})), HasSubstr("did you mean 'chatml'?"));
  put("odd.jinja", "{{ messages }}\n{% macro %}");
  EXPECT_THAT(fault(recipe("chat.jsonl", {"data.template=" + at("odd.jinja").string()})),
              HasSubstr("odd.jinja:2"));
  write_tiny_model(at("model"), 99);
  EXPECT_THAT(fault(recipe("chat.jsonl")), HasSubstr("the model has 99 tokens ("));
  EXPECT_FALSE(fs::exists(at("cache")) && !fs::is_empty(at("cache"))) << "something was left behind";
}

TEST_F(Text, ARunGoesOnWithItsOwnDataOnly) {
  const TextTask task = task_of(recipe("chat.jsonl"));
  EXPECT_THROW(task.open({.seed = 3, .sample = task.num_rows()}), UserError);
  EXPECT_NO_THROW(task.open({.seed = 3, .sample = task.num_rows() - 1}));
}

TEST_F(Text, KeysHaveTheNamesOfOtherTools) {
  const recipe::Recipe own =
      recipe("chat.jsonl", {"sample_packing=false", "cutoff_len=128", "train_on_inputs=true",
                            "chat_template=chatml", "micro_batch_size=3"});
  EXPECT_FALSE(own.data.packing);
  EXPECT_EQ(own.data.context, 128);
  EXPECT_TRUE(own.data.train_on_prompt);
  EXPECT_EQ(own.data.template_, "chatml");
  EXPECT_EQ(own.train.batch, 3);
  EXPECT_EQ(write_recipe(run::parse_recipe(write_recipe(own), "written")), write_recipe(own));
}

TEST_F(Text, EveryPartNeedsSomethingToTrainOn) {
  put("two.jsonl", chat_line("a", "b") + chat_line(std::string(90, 'a'), "b"));
  EXPECT_THAT(fault(recipe("two.jsonl", {"data.val_share=0.5"})),
              testing::AllOf(HasSubstr("found no samples held out in " + at("two.jsonl").string()),
                             HasSubstr("try data.context=128")));
  put("one.jsonl", chat_line("a", "b"));
  EXPECT_EQ(fault(recipe("one.jsonl")),
            at("one.jsonl").string() +
                ": its only sample is held out for validation (data.val_share=0.2), which leaves none to "
                "train on; add "
                "samples, or set data.val_path to a file to validate on, which may be the same");
  EXPECT_EQ(fault(recipe("one.jsonl", {"data.val_path=" + at("one.jsonl").string()})), "");
}

TEST_F(Text, MoreThanATenthOfTheSamplesIsNotLostSilently) {
  std::string chats;
  for (int i = 0; i < 10; ++i) chats += chat_line("q", "a");
  put("few.jsonl", chats + chat_line(std::string(90, 'a'), "b"));
  put("many.jsonl", chats + chat_line(std::string(90, 'a'), "b") + chat_line("q", std::string(90, 'b')));
  const std::string held_out = "data.val_path=" + at("chat.jsonl").string();
  EXPECT_EQ(task_of(recipe("few.jsonl", {held_out})).training_warning(), "");
  EXPECT_THAT(
      task_of(recipe("many.jsonl", {held_out})).training_warning(),
      testing::MatchesRegex("warning: 2 of 12 samples do not fit data.context=64: 1 are left out, 1 are cut; "
                            "data.context=128 would hold 90% of the samples whole"));
  EXPECT_THAT(task_of(recipe("many.jsonl", {held_out, "data.overlong=drop"})).training_warning(),
              HasSubstr("2 of 12 samples do not fit data.context=64: 2 are left out, 0 are cut"));
  put("bad.jsonl", chats + "x\ny\n");
  EXPECT_THAT(task_of(recipe("bad.jsonl", {held_out, "data.bad_records=skip"})).training_warning(),
              HasSubstr("warning: 2 of 12 records of " + at("bad.jsonl").string() + " cannot be used"));
}

TEST_F(Text, DropoutOfTheModelsConfigIsSaidToBeIgnored) {
  EXPECT_EQ(task_of(recipe("chat.jsonl")).training_warning(), "");
  std::string config = read_file(at("model/config.json"));
  config.insert(1, R"("attention_dropout": 0.1, )");
  put("model/config.json", config);
  EXPECT_EQ(task_of(recipe("chat.jsonl")).training_warning(),
            "the model's config.json has attention_dropout=0.1, which transformers trains with; Hearth "
            "trains without "
            "dropout");
}

TEST_F(Text, ReasoningThatTheTemplateLosesIsCounted) {
  std::string chats;
  for (int i = 0; i < 10; ++i)
    chats +=
        R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "reasoning_content": "why", "content": "a"}]})"
        "\n";
  put("thoughts.jsonl", chats);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(task_of(recipe("thoughts.jsonl")).training_warning(),
              "warning: 10 samples have reasoning (reasoning_content, thinking) that the chat template does "
              "not print: "
              "the model does not learn it");
  }
}

TEST_F(Text, ResumeIsBitExactAtTheEndOfAnEpochToo) {
  for (const char* packing : {"data.packing=true", "data.packing=false"}) {
    const recipe::Recipe three = recipe("chat.jsonl", {packing, "train.epochs=3"});
    const run::Outcome want = run::run_with_stop(three, 0);
    const auto epoch = std::ssize(want.losses) / 3;
    ASSERT_EQ(std::ssize(want.losses), 3 * epoch);
    ASSERT_GT(epoch, 2);
    for (const int64_t stop_after : {int64_t{1}, epoch - 1, epoch, epoch + 1, 2 * epoch}) {
      const run::Outcome got = run::run_with_stop(three, stop_after);
      EXPECT_EQ(got.memory, want.memory) << packing << ", stopped after " << stop_after;
      EXPECT_EQ(got.losses, want.losses) << packing << ", stopped after " << stop_after;
    }
  }
}

/// The weights after a run, one after the other.
std::vector<float> weights_after(const recipe::Recipe& recipe, std::vector<double>* losses) {
  const TemporaryFolder folder(run::quick_folder());
  run::Trainer trainer(tasks::Job(recipe), folder.path(),
                       {.progress = [](const run::Progress&) {}, .message = [](const std::string&) {}});
  trainer.run(false);
  for (const io::CurvePoint& point : io::read_curve(folder.path() / "trainer_log.jsonl", "loss"))
    losses->push_back(point.value);
  std::vector<float> all;
  for (const nn::Tensor& tensor : trainer.engine().plan().tensors) {
    const std::span<float> values = engine::values(trainer.engine(), tensor.name);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

TEST_F(Text, AccumulationEqualsTheLargeBatchThoughMicroBatchesTrainUnequally) {
  const TextTask task = task_of(recipe("chat.jsonl", {"data.packing=false"}));
  std::set<int64_t> trained;
  for (int64_t i = 0; i < 4; ++i) trained.insert(task.num_samples({.seed = 3, .sample = 2 * i}, 2));
  ASSERT_GT(trained.size(), 2U);
  for (const char* packing : {"data.packing=true", "data.packing=false"}) {
    std::vector<double> want_losses, got_losses;
    const auto want =
        weights_after(recipe("chat.jsonl", {packing, "train.steps=4", "train.batch=8", "train.accumulate=1"}),
                      &want_losses);
    const auto got = weights_after(
        recipe("chat.jsonl", {packing, "train.steps=4", "train.batch=2", "train.accumulate=4"}), &got_losses);
    ASSERT_EQ(want_losses.size(), 4U);
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(got_losses[i], want_losses[i], 2e-6) << packing;
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-6) << packing << ", weight " << i;
  }
}

/// One row's arrays, with the labels of one document alone where that is asked for.
struct Row {
  std::vector<int32_t> arrays[4];
  bool has_starts;
  Row(const engine::MicroBatch& batch, int64_t length, int64_t index)
      : has_starts(batch.arrays[3].name != nullptr) {
    for (size_t i = 0; i < (has_starts ? 4 : 3); ++i)
      arrays[i].assign(input(batch, i) + index * length, input(batch, i) + (index + 1) * length);
    for (int32_t i = 0, start = 0; !has_starts && i < length; ++i)
      arrays[3].push_back(start = arrays[2][static_cast<size_t>(i)] == 0 ? i : start);
    for (auto& array : arrays) array.resize(static_cast<size_t>(length) + 16);
  }
  engine::MicroBatch batch(int64_t length) const {
    engine::MicroBatch made{
        {{kInputs[0], arrays[0].data()}, {kInputs[1], arrays[1].data()}, {kInputs[2], arrays[2].data()}},
        1,
        length};
    if (has_starts) made.add({kInputs[3], arrays[3].data()});
    return made;
  }
  /// Where documents start.
  std::set<int32_t> starts(int64_t length) const { return {arrays[3].begin(), arrays[3].begin() + length}; }
  Row only(int32_t start) const {
    Row one = *this;
    for (size_t i = 0; i < one.arrays[1].size(); ++i) {
      if (arrays[3][i] != start) one.arrays[1][i] = -1;
    }
    return one;
  }
  std::string text(int32_t start) const {
    std::string made;
    for (size_t i = 0; i < arrays[0].size(); ++i) {
      if (arrays[3][i] == start && arrays[1][i] >= 0) made += character(arrays[1][i]);
      if (arrays[3][i] == start) made += character(arrays[0][i]);
    }
    return made;
  }
};

/// Each document's text and summed loss, held-out program, weights of the seed.
std::map<std::string, double> document_losses(const recipe::Recipe& recipe, int64_t num_rows) {
  const TextTask task = task_of(recipe);
  engine::EngineOptions options = run::engine_options(tasks::Job(recipe));
  options.row_lengths = task.row_lengths();
  const int64_t one[] = {1};
  engine::Engine engine(options, one, one);
  engine.initialize();
  std::map<std::string, double> losses;
  const auto stream = task.open({.seed = 3});
  for (int64_t done = 0; done < num_rows;) {
    const engine::MicroBatch batch = stream->next();
    const int64_t length = batch.row_length > 0 ? batch.row_length : recipe.data.context;
    for (int64_t i = 0; i < batch.num_rows; ++i, ++done) {
      const Row row(batch, length, i);
      for (const int32_t start : row.starts(length)) {
        const Row alone = row.only(start);
        if (std::ranges::all_of(alone.arrays[1], [](int32_t label) { return label <= 0; })) continue;
        std::string text = row.text(start);
        losses[text.substr(0, text.find_last_not_of(' ') + 1)] =
            engine.evaluate(alone.batch(batch.row_length));
      }
    }
  }
  return losses;
}

TEST_F(Text, PackingChangesNoDocumentsLoss) {
  const recipe::Recipe packed = recipe("chat.jsonl", {"data.context=128"}),
                       unpacked = recipe("chat.jsonl", {"data.packing=false"});
  ASSERT_TRUE(has_documents(packed));
  const auto want = document_losses(unpacked, task_of(unpacked).num_rows());
  const auto got = document_losses(packed, task_of(packed).num_rows());
  EXPECT_LT(task_of(packed).num_rows(), 20);
  ASSERT_EQ(want.size(), 32U);
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [text, loss] : want) {
    ASSERT_TRUE(got.contains(text)) << text;
    EXPECT_NEAR(got.at(text), loss, 1e-6 * std::abs(loss)) << text;
  }
}

}  // namespace
}  // namespace hearth::tasks
