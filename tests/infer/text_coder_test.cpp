#include "infer/text_coder.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>

#include "base/asan.h"
#include "base/error.h"
#include "io/safetensors.h"
#include "temporary_folder.h"

namespace hearth::infer {
namespace {

using testing::HasSubstr;

/// Tensors of numbers that look random.
class Weights {
 public:
  void add(const std::string& name, const Shape& shape, float scale) {
    std::vector<float>& values = memory_.emplace_back();
    for (int64_t i = 0; i < shape.num_elements(); ++i)
      values.push_back(scale * std::sin(static_cast<float>(++drawn_ * 7919 % 100003)));
    shapes_.emplace_back(name, shape);
  }
  void write(const fs::path& file) const {
    std::vector<io::TensorView> views;
    for (size_t i = 0; i < shapes_.size(); ++i)
      views.push_back({.name = shapes_[i].first,
                       .dtype = DType::f32,
                       .shape = shapes_[i].second,
                       .bytes = std::as_bytes(std::span(memory_[i]))});
    io::write_safetensors(file, views);
  }

 private:
  std::vector<std::vector<float>> memory_;
  std::vector<std::pair<std::string, Shape>> shapes_;
  int64_t drawn_ = 0;
};

void put(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  write_file_atomically(file, text);
}

/// Words a to j are ids 3 to 12, after <pad>, </s> and <unk>.
void put_tokenizer(const fs::path& folder,
                   const char* config = R"({"pad_token": "<pad>", "eos_token": "</s>"})") {
  std::string vocab = R"("<pad>": 0, "</s>": 1, "<unk>": 2)";
  for (char c = 'a'; c <= 'j'; ++c) vocab += fmt::format(", \"{}\": {}", c, c - 'a' + 3);
  put(folder / "tokenizer.json",
      fmt::format(R"({{"added_tokens": [{{"id": 0, "content": "<pad>", "special": true}},
{{"id": 1, "content": "</s>", "special": true}}], "pre_tokenizer": {{"type": "Whitespace"}},
"post_processor": {{"type": "TemplateProcessing", "single": [{{"Sequence": {{"id": "A", "type_id": 0}}}},
{{"SpecialToken": {{"id": "</s>", "type_id": 0}}}}],
"special_tokens": {{"</s>": {{"id": "</s>", "ids": [1], "tokens": ["</s>"]}}}}}},
"model": {{"type": "WordLevel", "unk_token": "<unk>", "vocab": {{{}}}}}}})",
                  vocab));
  put(folder / "tokenizer_config.json", config);
}

void put_clip(const fs::path& folder) {
  put(folder / "config.json", R"({"model_type": "clip_text_model", "vocab_size": 13, "hidden_size": 8,
"intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 6,
"eos_token_id": 1})");
  Weights weights;
  weights.add("text_model.embeddings.token_embedding.weight", {13, 8}, 1);
  weights.add("text_model.embeddings.position_embedding.weight", {6, 8}, 1);
  for (const char* layer : {"text_model.encoder.layers.0.", "text_model.encoder.layers.1."}) {
    const auto linear = [&](const std::string& name, int64_t out, int64_t in) {
      weights.add(layer + name + ".weight", {out, in}, 0.5F);
      weights.add(layer + name + ".bias", {out}, 0.5F);
    };
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
      linear(std::string("self_attn.") + name, 8, 8);
    linear("mlp.fc1", 12, 8);
    linear("mlp.fc2", 8, 12);
    for (const char* norm : {"layer_norm1", "layer_norm2"}) {
      weights.add(layer + std::string(norm) + ".weight", {8}, 1);
      weights.add(layer + std::string(norm) + ".bias", {8}, 1);
    }
  }
  weights.add("text_model.final_layer_norm.weight", {8}, 1);
  weights.add("text_model.final_layer_norm.bias", {8}, 1);
  weights.write(folder / "model.safetensors");
}

constexpr int64_t kHeads = 4;

/// A layer has 4 width^2 + 12 width^2 weights. `last`: the scale of the last layer's second norm.
void put_t5(const fs::path& folder, int64_t width, int64_t num_layers, float last = 1) {
  put(folder / "config.json",
      fmt::format(R"({{"model_type": "t5", "vocab_size": 13, "d_model": {0}, "d_kv": {1}, "d_ff": {2},
"num_layers": {3}, "num_heads": 4, "feed_forward_proj": "gated-gelu"}})",
                  width, width / kHeads, 4 * width, num_layers));
  Weights weights;
  const float scale = 1 / std::sqrt(static_cast<float>(width));
  weights.add("shared.weight", {13, width}, 1);
  for (int64_t i = 0; i < num_layers; ++i) {
    const std::string attention = fmt::format("encoder.block.{}.layer.0.", i);
    const std::string mlp = fmt::format("encoder.block.{}.layer.1.", i);
    for (const char* name : {"q", "k", "v", "o"})
      weights.add(attention + "SelfAttention." + name + ".weight", {width, width}, scale);
    if (i == 0) weights.add(attention + "SelfAttention.relative_attention_bias.weight", {32, kHeads}, 1);
    weights.add(attention + "layer_norm.weight", {width}, 1);
    for (const char* name : {"wi_0", "wi_1"})
      weights.add(mlp + "DenseReluDense." + name + ".weight", {4 * width, width}, scale);
    weights.add(mlp + "DenseReluDense.wo.weight", {width, 4 * width}, scale);
    weights.add(mlp + "layer_norm.weight", {width}, i == num_layers - 1 ? last : 1);
  }
  weights.add("encoder.final_layer_norm.weight", {width}, 1);
  weights.write(folder / "model.safetensors");
}

constexpr const char* kIndex = R"({"text_encoder": ["transformers", "CLIPTextModel"],
"text_encoder_2": ["transformers", "T5EncoderModel"]})";

void put_models(const fs::path& folder, int64_t width, int64_t num_layers) {
  put(folder / "model_index.json", kIndex);
  put_tokenizer(folder / "tokenizer");
  put_tokenizer(folder / "tokenizer_2");
  put_clip(folder / "text_encoder");
  put_t5(folder / "text_encoder_2", width, num_layers);
}

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
      TextCoder(folder_.path(), 5, 1);
    } catch (const UserError& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryFolder folder_;
};

TEST_F(Captions, HaveHiddenStatesAndAPooledVector) {
  TextCoder coder(folder_.path(), 5, 2);
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

TEST_F(Captions, AreCutBeforeTheEndToken) {
  TextCoder coder(folder_.path(), 5, 2);
  const std::vector<Encoded> made = encode(coder, {"a b c d", "a b c d e", "a b c d e f g", "a b c d f"});
  EXPECT_EQ(made[0].text, made[1].text);
  EXPECT_EQ(made[0].text, made[2].text);
  EXPECT_NE(made[0].pooled, made[1].pooled) << "CLIP reads six tokens";
  EXPECT_EQ(made[1].pooled, made[2].pooled);
  EXPECT_NE(made[1].pooled, made[3].pooled);
}

TEST_F(Captions, ComeAloneAsTheyComeTogether) {
  TextCoder coder(folder_.path(), 5, 2);
  std::vector<std::string> captions;
  for (int i = 0; i < 200; ++i)
    captions.push_back(fmt::format("{} {}", static_cast<char>('a' + i % 10), i % 3));
  const std::vector<Encoded> together = encode(coder, captions);
  ASSERT_EQ(together.size(), captions.size());
  for (const size_t i : {0U, 57U, 199U}) EXPECT_EQ(encode(coder, {captions[i]})[0], together[i]) << i;
}

TEST_F(Captions, DependOnTheLastLayer) {
  TextCoder coder(folder_.path(), 5, 2);
  const Encoded before = encode(coder, {"a b"})[0];
  const uint64_t hash = coder.hash();
  put_t5(folder_.path() / "text_encoder_2", 16, 3, 0.5F);
  TextCoder other(folder_.path(), 5, 2);
  EXPECT_NE(encode(other, {"a b"})[0].text, before.text);
  EXPECT_NE(other.hash(), hash);
}

TEST_F(Captions, RefusesFoldersOfOtherModels) {
  put(folder_.path() / "tokenizer/tokenizer_config.json", "{}");
  EXPECT_THAT(refusal(), HasSubstr("expected a pad_token"));
  put(folder_.path() / "model_index.json",
      R"({"text_encoder": ["transformers", "GemmaModel"], "text_encoder_2": [null, null]})");
  EXPECT_THAT(refusal(), HasSubstr("got 'GemmaModel' and ''"));
  fs::remove(folder_.path() / "model_index.json");
  EXPECT_THAT(refusal(), HasSubstr("with model_index.json"));
}

TEST_F(Captions, RefusesIdsBeyondTheTable) {
  Weights weights;
  weights.add("text_model.embeddings.token_embedding.weight", {4, 8}, 1);
  weights.write(folder_.path() / "text_encoder/model.safetensors");
  TextCoder coder(folder_.path(), 5, 1);
  try {
    encode(coder, {"a c"});
    FAIL() << "encoded an id without a row";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected ids below the 4 rows"));
    EXPECT_THAT(error.what(), HasSubstr("the tokenizer gave 5"));
  }
}

#if !defined(HEARTH_ASAN) && !defined(__SANITIZE_THREAD__)
/// The most memory, in bytes, that a process of its own has in use while it encodes.
int64_t peak_of_encoding(const fs::path& folder) {
  const pid_t child = fork();
  if (child == 0) {
    TextCoder coder(folder, 8, 1);
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
  const int64_t bytes = TextCoder(many.path(), 8, 1).memory_bytes();
  EXPECT_EQ(bytes, TextCoder(few.path(), 8, 1).memory_bytes());
  EXPECT_LT(bytes, 2 * kLayerBytes);
#if !defined(HEARTH_ASAN) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(peak_of_encoding(many.path()), peak_of_encoding(few.path()) + kLayerBytes);
#endif
}

}  // namespace
}  // namespace hearth::infer
