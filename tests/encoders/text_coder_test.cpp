#include "encoders/text_coder.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>

#include "base/asan.h"
#include "base/error.h"
#include "encoders/tiny_text_models.h"
#include "temporary_folder.h"

namespace hearth::encoders {
namespace {

using testing::HasSubstr;

struct Encoded {
  std::vector<float> text, pooled;
  bool operator==(const Encoded&) const = default;
};

std::vector<Encoded> encode(TextCoder& coder, const std::vector<std::string>& captions) {
  std::vector<Encoded> made;
  coder.encode(captions, [&](size_t i, std::span<const float> text, std::span<const float> pooled) {
    EXPECT_EQ(i, made.size());
    made.push_back({{text.begin(), text.end()}, {pooled.begin(), pooled.end()}});
  });
  return made;
}

class Captions : public testing::Test {
 protected:
  Captions() { put_models(folder_.path(), 16, 3); }
  std::string refusal() const {
    try {
      TextCoder(folder_.path(), 5, {.num_threads = 1});
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder_;
};

TEST_F(Captions, HaveHiddenStatesAndAPooledVector) {
  TextCoder coder(folder_.path(), 5, {.num_threads = 2});
  EXPECT_EQ(coder.text_width(), 16);
  EXPECT_EQ(coder.pooled_width(), 8);
  EXPECT_EQ(coder.num_tokens(), 5);
  const std::vector<Encoded> made = encode(coder, {"a b", "c"});
  ASSERT_EQ(made.size(), 2U);
  for (const Encoded& each : made) {
    EXPECT_EQ(each.text.size(), size_t{5 * 16});
    EXPECT_EQ(each.pooled.size(), size_t{8});
    EXPECT_THAT(each.text, testing::Each(testing::Truly([](float value) { return std::isfinite(value); })));
  }
  EXPECT_NE(made[0].text, made[1].text);
  EXPECT_NE(made[0].pooled, made[1].pooled);
}

TEST_F(Captions, AreEncodedOnAGpuAsOnTheProcessor) {
  TextCoder here(folder_.path(), 5, {.num_threads = 2});
  TextCoder there(folder_.path(), 5, {.gpu = exec::GpuRequest{.device = "emulated"}});
  const Encoded made = encode(here, {"a b"})[0], meant = encode(there, {"a b"})[0];
  EXPECT_THAT(made.text, testing::Pointwise(testing::FloatNear(1e-4F), meant.text));
  EXPECT_THAT(made.pooled, testing::Pointwise(testing::FloatNear(1e-4F), meant.pooled));
}

TEST_F(Captions, AreCutBeforeTheEndToken) {
  TextCoder coder(folder_.path(), 5, {.num_threads = 2});
  const std::vector<Encoded> made = encode(coder, {"a b c d", "a b c d e", "a b c d e f g", "a b c d f"});
  EXPECT_EQ(made[0].text, made[1].text);
  EXPECT_EQ(made[0].text, made[2].text);
  EXPECT_NE(made[0].pooled, made[1].pooled) << "CLIP reads six tokens";
  EXPECT_EQ(made[1].pooled, made[2].pooled);
  EXPECT_NE(made[1].pooled, made[3].pooled);
}

TEST_F(Captions, ComeAloneAsTheyComeTogether) {
  TextCoder coder(folder_.path(), 5, {.num_threads = 2});
  std::vector<std::string> captions;
  for (int i = 0; i < 200; ++i)
    captions.push_back(fmt::format("{} {}", static_cast<char>('a' + i % 10), i % 3));
  const std::vector<Encoded> together = encode(coder, captions);
  ASSERT_EQ(together.size(), captions.size());
  for (const size_t i : {0U, 57U, 199U}) EXPECT_EQ(encode(coder, {captions[i]})[0], together[i]) << i;
}

TEST_F(Captions, DependOnTheLastLayer) {
  TextCoder coder(folder_.path(), 5, {.num_threads = 2});
  const Encoded before = encode(coder, {"a b"})[0];
  const uint64_t hash = coder.hash();
  put_t5(folder_.path() / "text_encoder_2", 16, 3, 0.5F);
  TextCoder other(folder_.path(), 5, {.num_threads = 2});
  EXPECT_NE(encode(other, {"a b"})[0].text, before.text);
  EXPECT_NE(other.hash(), hash);
}

TEST_F(Captions, RefusesFoldersOfOtherModels) {
  put(folder_.path() / "tokenizer/tokenizer_config.json", "{}");
  EXPECT_THAT(refusal(), HasSubstr("has no pad_token"));
  put(folder_.path() / "model_index.json",
      R"({"text_encoder": ["transformers", "GemmaModel"], "text_encoder_2": [null, null]})");
  EXPECT_THAT(refusal(), HasSubstr("got 'GemmaModel' and ''"));
  fs::remove(folder_.path() / "model_index.json");
  EXPECT_THAT(refusal(), HasSubstr("has no model_index.json"));
}

TEST_F(Captions, RefusesIdsBeyondTheTable) {
  TinyWeights weights;
  weights.add("text_model.embeddings.token_embedding.weight", {4, 8}, 1);
  weights.write(folder_.path() / "text_encoder/model.safetensors");
  TextCoder coder(folder_.path(), 5, {.num_threads = 1});
  try {
    encode(coder, {"a c"});
    FAIL() << "encoded an id without a row";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("has only 4 rows"));
    EXPECT_THAT(error.what(), HasSubstr("the tokenizer gave the id 5"));
  }
}

#if !defined(HEARTH_ASAN) && !defined(__SANITIZE_THREAD__)
/// The most memory, in bytes, that a process of its own has in use while it encodes.
int64_t peak_of_encoding(const fs::path& folder) {
  const pid_t child = fork();
  if (child == 0) {
    TextCoder coder(folder, 8, {.num_threads = 1});
    coder.encode(std::vector<std::string>{"a b"},
                 [](size_t, std::span<const float>, std::span<const float>) {});
    _exit(0);
  }
  rusage usage{};
  int status = -1;
  wait4(child, &status, 0, &usage);
  EXPECT_EQ(status, 0);
  return int64_t{usage.ru_maxrss} * 1024;
}
#endif

TEST(CaptionMemory, HoldsOneLayerHoweverManyThereAre) {
  constexpr int64_t kWidth = 256, kLayerBytes = 16 * kWidth * kWidth * 4;
  TemporaryFolder few, many;
  put_models(few.path(), kWidth, 2);
  put_models(many.path(), kWidth, 14);
  const int64_t bytes = TextCoder(many.path(), 8, {.num_threads = 1}).memory_bytes();
  EXPECT_EQ(bytes, TextCoder(few.path(), 8, {.num_threads = 1}).memory_bytes());
  EXPECT_LT(bytes, 2 * kLayerBytes);
#if !defined(HEARTH_ASAN) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(peak_of_encoding(many.path()), peak_of_encoding(few.path()) + kLayerBytes);
#endif
}

}  // namespace
}  // namespace hearth::encoders
