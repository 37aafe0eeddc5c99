#include "infer/generator.h"

#include <gmock/gmock.h>

#include <cmath>

#include "backend/cpu/convert.h"
#include "base/error.h"
#include "hub/model_weights.h"
#include "hub/weights.h"
#include "tasks/language/language_model.h"
#include "temporary_folder.h"
#include "tiny_language_model.h"

namespace hearth::infer {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Any n tokens are the first n bytes of a text.
class Spelling : public text::Tokenizer {
 public:
  explicit Spelling(std::string text, std::optional<int32_t> eos = {}) : text_(std::move(text)) {
    special_.eos = eos;
  }
  void encode(std::string_view, text::SpecialTokens, std::vector<int32_t>&) const override {}
  std::string decode(std::span<const int32_t> ids) const override { return text_.substr(0, ids.size()); }
  int64_t vocab_size() const override { return 100; }
  std::optional<int32_t> id_of(std::string_view) const override { return {}; }

 private:
  std::string text_;
};

class Generation : public testing::Test {
 protected:
  Generation() {
    write_tiny_model(folder_.path());
    const engine::EngineOptions options{
        .objective = tasks::language_model(
            {.config = models::read_decoder_config(folder_.path() / "config.json"), .context = 8})};
    const int64_t sizes[] = {1};
    engine::Engine engine(options, {}, sizes);
    engine.initialize();
    hub::save_weights(engine, folder_.path() / "model.safetensors", false);
  }
  Generator generator(int64_t slots) const {
    return Generator(hub::find_model(folder_.path()), {.slots = slots, .compute = {.num_threads = 2}});
  }
  /// The pieces of an answer whose tokens spell `text` after its first byte.
  std::vector<std::string> pieces(const std::string& text, const std::vector<std::string>& stop,
                                  Answer* answer = nullptr) const {
    Generator model = generator(64);
    const Spelling spelling(text);
    std::vector<std::string> found;
    const int32_t prompt[] = {7};
    const AnswerOptions options{.max_tokens = std::ssize(text) - 1, .stop = stop};
    const Answer made = infer::answer(model, &spelling, prompt, options,
                                      [&](std::string_view piece) { found.emplace_back(piece); });
    if (answer != nullptr) *answer = made;
    return found;
  }
  std::string fault(FunctionRef<void()> body) const {
    try {
      body();
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_;
};

TEST_F(Generation, LogitsDoNotDependOnThePiecesThatAreFed) {
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 150; ++i) ids.push_back(i * 37 % 100);
  Generator whole = generator(150), single = generator(200);
  const std::span<const float> all = whole.feed(ids);
  std::span<const float> last;
  for (const int32_t id : ids) last = single.feed({&id, 1});
  ASSERT_EQ(all.size(), 100u);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_NEAR(all[i], last[i], 1e-5) << i;
}

TEST_F(Generation, LongropeIsChosenByTheTokensThereAre) {
  std::string config = read_file(folder_.path() / "config.json");
  config.replace(config.find('{'), 1, R"({"original_max_position_embeddings": 20, "rope_scaling": {
"rope_type": "longrope", "short_factor": [1, 1, 1, 1], "long_factor": [1, 3, 5, 7]}, )");
  write_file_atomically(folder_.path() / "config.json", config);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 90; ++i) ids.push_back(i * 37 % 100);
  const auto expect_near = [](std::span<const float> found, std::span<const float> wanted) {
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-5) << i;
  };
  Generator large = generator(90), small = generator(20);
  expect_near(large.feed(std::span(ids).first(15)), small.feed(std::span(ids).first(15)));
  // What was a short context becomes a long one with its 21st token.
  for (const size_t length : {20U, 21U, 90U}) {
    Generator whole = generator(90);
    const std::span<const float> wanted = whole.feed(std::span(ids).first(length));
    Generator single = generator(90);
    std::span<const float> found;
    for (size_t i = 0; i < length; ++i) found = single.feed(std::span(ids).subspan(i, 1));
    expect_near(found, wanted);
  }
}

TEST_F(Generation, TensorsThatNothingReadsAreRefused) {
  const fs::path file = folder_.path() / "model.safetensors";
  const io::SafetensorsFile saved(file);
  const auto opened_with = [&](io::TensorView extra) {
    std::vector<io::TensorView> views = saved.tensors();
    std::erase_if(views, [&](const io::TensorView& view) { return view.name == extra.name; });
    views.push_back(std::move(extra));
    io::write_safetensors(folder_.path() / "edited.safetensors", views);
    fs::rename(folder_.path() / "edited.safetensors", file);
    return fault([&] { generator(8); });
  };
  const std::vector<float> ones(100 * 16, 1.0F);
  const auto bytes = std::as_bytes(std::span(ones));
  const io::TensorView few{.name = "", .dtype = DType::f32, .shape = {4}, .bytes = bytes.first(16)};
  const auto named = [](io::TensorView view, const char* name) {
    view.name = name;
    return view;
  };
  EXPECT_EQ(opened_with(named(few, "model.layers.1.self_attn.rotary_emb.inv_freq")), "");
  EXPECT_THAT(opened_with(named(few, "model.layers.1.self_attn.q_proj.bias")), HasSubstr("q_proj.bias"));
  std::string config = read_file(folder_.path() / "config.json");
  config.replace(config.find('{'), 1, R"({"tie_word_embeddings": true, )");
  write_file_atomically(folder_.path() / "config.json", config);
  const auto table = std::ranges::find(saved.tensors(), "model.embed_tokens.weight", &io::TensorView::name);
  EXPECT_EQ(opened_with(named(*table, "lm_head.weight")), "");
  const io::TensorView other{
      .name = "lm_head.weight", .dtype = DType::f32, .shape = {100, 16}, .bytes = bytes};
  EXPECT_THAT(opened_with(other), HasSubstr("tie_word_embeddings"));
}

TEST_F(Generation, WeightsThatAreNotFiniteAreRefused) {
  const fs::path file = folder_.path() / "model.safetensors";
  constexpr const char* kName = "model.layers.1.mlp.up_proj.weight";
  const io::SafetensorsFile saved(file);
  const auto faults_with = [&](DType dtype, float value, size_t at) {
    std::vector<float> values(24 * 16, 0.5F);
    values[at] = value;
    std::vector<float> stored(values.size());
    cpu::store_f32(dtype, values.data(), stored.data(), 0, std::ssize(values));
    std::vector<io::TensorView> views = saved.tensors();
    io::TensorView& view = *std::ranges::find(views, kName, &io::TensorView::name);
    view.dtype = dtype;
    view.bytes =
        std::as_bytes(std::span(stored)).first(values.size() * static_cast<size_t>(dtype_bytes(dtype)));
    io::write_safetensors(folder_.path() / "edited.safetensors", views);
    fs::rename(folder_.path() / "edited.safetensors", file);
    hub::ModelWeights weights(hub::find_model(folder_.path()), 2);
    const DType other = dtype == DType::f32 ? DType::bf16 : DType::f32;
    return std::pair(fault([&] { generator(8); }),
                     fault([&] { weights.bytes_of(*weights.files().find(kName), other); }));
  };
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    EXPECT_EQ(faults_with(dtype, 60000, 0), std::pair(std::string(), std::string()));
    for (const float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
      const auto [loaded, exported] = faults_with(dtype, bad, 24 * 16 - 1);
      EXPECT_THAT(loaded, HasSubstr(fmt::format("'{}' has values that are infinite or NaN", kName)));
      EXPECT_THAT(exported, HasSubstr(kName));
    }
  }
}

TEST_F(Generation, ForgetsAtARestart) {
  const std::vector<int32_t> ids = {5, 6, 7};
  Generator used = generator(20), fresh = generator(20);
  used.feed(std::vector<int32_t>{90, 91, 92, 93, 94});
  used.restart();
  const std::span<const float> again = used.feed(ids), want = fresh.feed(ids);
  EXPECT_TRUE(std::equal(again.begin(), again.end(), want.begin()));
}

TEST_F(Generation, RefusesWhatDoesNotFit) {
  Generator model = generator(4);
  EXPECT_THAT(fault([&] {
                model.feed(std::vector<int32_t>{1, 2, 3, 4, 5});
              }),
              HasSubstr("the KV cache holds 4"));
  EXPECT_THAT(fault([&] { model.feed(std::vector<int32_t>{100}); }),
              HasSubstr("token id 100 is out of range; the model has ids 0 to 99"));
  model.feed(std::vector<int32_t>{1, 2, 3, 4});
}

TEST_F(Generation, HandsOutWholeCharacters) {
  EXPECT_THAT(pieces("xa\u00e9\u20ac\U0001F600b", {}),
              ElementsAre("a", "\u00e9", "\u20ac", "\U0001F600", "b"));
}

TEST_F(Generation, EndsBeforeAStopTextAndShowsNothingOfIt) {
  Answer answer;
  EXPECT_THAT(pieces("xabcabdabe", {"abd", "zz"}, &answer), ElementsAre("abc"));
  EXPECT_TRUE(answer.ended);
  EXPECT_EQ(answer.text, "abc");
  EXPECT_EQ(answer.ids.size(), 6u);
  EXPECT_THAT(pieces("xabab", {"abd"}, &answer), ElementsAre("ab", "ab"));
  EXPECT_FALSE(answer.ended);
}

TEST_F(Generation, EndsAtAnEndTokenOrAFullCache) {
  Generator model = generator(6);
  const int32_t prompt[] = {7};
  const auto nothing = [](std::string_view) {};
  const Answer full = infer::answer(model, nullptr, prompt, {.max_tokens = 50}, nothing);
  EXPECT_EQ(full.ids.size(), 5u);
  EXPECT_FALSE(full.ended);
  model.restart();
  const Spelling ending("xxxxxxxx", full.ids[0]);
  const Answer ended = infer::answer(model, &ending, prompt, {.max_tokens = 50}, nothing);
  EXPECT_TRUE(ended.ended);
  EXPECT_TRUE(ended.ids.empty());
}

}  // namespace
}  // namespace hearth::infer
