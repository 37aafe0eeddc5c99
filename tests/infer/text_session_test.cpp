#include "infer/text_session.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "hub/weights.h"
#include "tasks/language/language_model.h"
#include "temporary_folder.h"
#include "tiny_language_model.h"

namespace hearth::infer {
namespace {

class Session : public testing::Test {
 protected:
  Session() {
    write_tiny_model(model());
    const engine::EngineOptions options{
        .objective = tasks::language_model(
            {.config = models::read_decoder_config(model() / "config.json"), .context = 8})};
    const int64_t sizes[] = {1};
    engine::Engine engine(options, {}, sizes);
    engine.initialize();
    hub::save_weights(engine, model() / "model.safetensors", false);
  }
  fs::path model() const { return folder_.path() / "model"; }
  TextSession open(int64_t slots = 0) const {
    return {hub::find_model(model()), {.generator = {.slots = slots, .compute = {.num_threads = 2}}}};
  }
  static text::Json question(const std::string& content) {
    return {{{"role", "user"}, {"content", content}}};
  }
  static std::string ask(TextSession& session, const std::string& content) {
    std::string emitted;
    const Answer found = session.ask(session.chat_prompt(question(content)),
                                     {.sampler = {.temperature = 1, .seed = 5}, .max_tokens = 20},
                                     [&](std::string_view piece) { emitted += piece; });
    EXPECT_EQ(found.text, emitted);
    EXPECT_FALSE(found.ids.empty());
    return found.text;
  }
  static std::vector<float> logits(Generator& generator, std::span<const int32_t> ids) {
    const std::span<const float> found = generator.feed(ids);
    return {found.begin(), found.end()};
  }

  TemporaryFolder folder_;
};

TEST_F(Session, AnswersTwiceWithoutTheFilesOfTheModel) {
  // Long enough that the second question shares full pieces of the first.
  const std::string first(100, 'a'), second = first.substr(0, 90) + "bcd";
  TextSession fresh_first = open(), fresh_second = open();
  const std::string wanted_first = ask(fresh_first, first), wanted_second = ask(fresh_second, second);
  TextSession session = open();
  EXPECT_EQ(ask(session, first), wanted_first);
  const Generator* const loaded = &session.open(1, 1);
  const size_t num_tokens = loaded->tokens().size();
  fs::remove_all(model());
  EXPECT_EQ(ask(session, second), wanted_second);
  EXPECT_EQ(ask(session, first), wanted_first);
  EXPECT_EQ(&session.open(1, 1), loaded);
  EXPECT_EQ(loaded->tokens().size(), num_tokens);
}

TEST_F(Session, ALongerQuestionGetsALargerCacheUnlessOneIsSet) {
  TextSession session = open(), fixed = open(40);
  ask(session, "a");
  EXPECT_LT(session.open(1, 1).num_slots(), 100);
  ask(session, std::string(100, 'b'));
  EXPECT_GT(session.open(1, 1).num_slots(), 100);
  ask(fixed, "a");
  EXPECT_THROW(ask(fixed, std::string(100, 'b')), UserError);
  EXPECT_EQ(ask(fixed, "a").size(), ask(session, "a").size());
}

TEST_F(Session, PromptsAreTextOrChats) {
  TextSession session = open();
  EXPECT_THAT(session.text_prompt("ab"), testing::ElementsAre('a' - 32, 'b' - 32));
  text::Json messages = question("a");
  messages.push_back({{"role", "assistant"}, {"content", "b"}});
  messages.push_back(question("c")[0]);
  const std::vector<int32_t> ids = session.chat_prompt(messages);
  // <|im_start|>, "user", a line's end and so on, to the line's end after "assistant".
  EXPECT_EQ(ids.front(), 98);
  EXPECT_EQ(ids.back(), 95);
  EXPECT_EQ(std::ranges::count(ids, 98), 4);
  EXPECT_EQ(std::ranges::count(ids, 99), 3);
}

TEST_F(Session, AKeptPrefixGivesTheBitsOfAFreshPrompt) {
  Generator kept(hub::find_model(model()), {.slots = 300}), fresh(hub::find_model(model()), {.slots = 300});
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 200; ++i) ids.push_back(i * 37 % 100);
  EXPECT_EQ(kept.keep_prefix(ids), 0);
  kept.feed(ids);
  for (const int32_t id : {3, 4, 5}) kept.feed({&id, 1});
  for (const auto& [length, changed, wanted] :
       {std::tuple(200, 150, 128), {200, 127, 64}, {180, 199, 128}, {128, 199, 64}, {60, 199, 0}}) {
    std::vector<int32_t> next(ids.begin(), ids.begin() + length);
    if (changed < length) next[static_cast<size_t>(changed)] = 1;
    ASSERT_EQ(kept.keep_prefix(next), wanted);
    fresh.restart();
    EXPECT_EQ(logits(kept, std::span(next).subspan(static_cast<size_t>(wanted))), logits(fresh, next));
    // Tokens that ran one by one are no full piece.
    kept.restart();
    for (const int32_t id : ids) kept.feed({&id, 1});
    EXPECT_EQ(kept.keep_prefix(ids), 0);
    kept.feed(ids);
  }
}

TEST_F(Session, AGpuAndBf16GiveTheLogitsOfTheCpu) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 70; ++i) ids.push_back(i * 37 % 100);
  const auto last_logits = [&](const GeneratorOptions& options) {
    Generator generator(hub::find_model(model()), options);
    logits(generator, ids);
    const int32_t next = 5;
    return logits(generator, {&next, 1});
  };
  const auto cpu = last_logits({.slots = 80});
  const auto on_gpu = [&](DType precision) {
    return last_logits(
        {.slots = 80,
         .compute = {.gpu = exec::GpuRequest{.device = "emulated"}, .self_test = SelfTestMode::never},
         .precision = precision});
  };
  const auto gpu = on_gpu(DType::f32);
  EXPECT_THAT(gpu, testing::Pointwise(testing::FloatNear(1e-4F), cpu));
  EXPECT_NE(gpu, cpu) << "of the CPU both times";
  for (const auto& found : {last_logits({.slots = 80, .precision = DType::bf16}), on_gpu(DType::bf16)}) {
    EXPECT_THAT(found, testing::Pointwise(testing::FloatNear(0.03F), cpu));
    EXPECT_NE(found, cpu);
  }
}

}  // namespace
}  // namespace hearth::infer
