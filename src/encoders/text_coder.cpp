#include "encoders/text_coder.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "base/foreign.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/run_files.h"
#include "encoders/text_encoder.h"
#include "hub/weights.h"
#include "models/clip/clip.h"
#include "models/decoder/decoder.h"
#include "models/t5/t5.h"
#include "text/chat.h"
#include "text/tokenizer.h"

namespace hearth::encoders {

using ir::ValueId;

/// Text encoders of one family of denoisers.
class CaptionEncoder {
 public:
  using Take =
      std::function<void(size_t caption, std::span<const float> text, std::span<const float> pooled)>;
  virtual ~CaptionEncoder() = default;
  virtual const TextEncoder& text() const = 0;
  virtual int64_t pooled_width() const = 0;
  virtual uint64_t hash() const = 0;
  virtual int64_t memory_bytes() const = 0;
  virtual std::string truncation_note(std::span<const std::string> captions) const = 0;
  virtual void encode(std::span<const std::string> captions, const Take& take) = 0;
};

namespace {

/// Describes captions that exceed a token limit: "3 of 40 texts are longer than the 77 tokens of ... (the
/// longest has 93): ..."; empty if none does.
std::string truncation_sentence(std::span<const std::string> captions, int64_t limit, std::string_view reader,
                                std::string_view effect,
                                FunctionRef<int64_t(const std::string&)> num_tokens) {
  int64_t count = 0, longest = 0;
  for (const std::string& caption : captions) {
    const int64_t tokens = num_tokens(caption);
    count += tokens > limit ? 1 : 0;
    longest = std::max(longest, tokens);
  }
  if (count == 0) return "";
  return fmt::format("{} of {} texts {} longer than the {} tokens of {} (the longest has {}): {}", count,
                     captions.size(), count == 1 ? "is" : "are", limit, reader, longest, effect);
}
constexpr std::string_view kTextTokens = "diffuse.text_tokens", kCut = "their ends are cut off";

/// Added to the attention scores of masked keys; exp() of the result is 0.
constexpr float kMaskedScore = -1e30F;

std::string first_existing(const io::WeightFiles& files, std::initializer_list<const char*> names) {
  const auto is_there = [&](const char* name) { return files.find(name) != nullptr; };
  const auto* const found = std::ranges::find_if(names, is_there);
  return found == names.end() ? *names.begin() : *found;
}

int32_t pad_of(const text::Tokenizer& tokenizer, const fs::path& folder) {
  if (tokenizer.pad()) return *tokenizer.pad();
  user_error("{}: tokenizer_config.json has no pad_token; add it", folder.string());
}

/// CLIP's text encoder with its tokenizer.
class Clip {
 public:
  Clip(const fs::path& model, const fs::path& tokenizer, const Compute& compute)
      : config_(models::read_clip_config(model / kModelConfig)),
        files_(model),
        tokenizer_(text::open_tokenizer(tokenizer)),
        pad_(pad_of(*tokenizer_, tokenizer)),
        encoder_(parts(), files_, compute) {}

  int64_t width() const { return config_.hidden; }
  std::string truncation_note(std::span<const std::string> captions) const {
    return truncation_sentence(captions, config_.num_positions, "CLIP",
                               "only the other text encoder reads their ends",
                               [&](const std::string& caption) { return num_ids(*tokenizer_, caption); });
  }
  const io::WeightFiles& files() const { return files_; }
  int64_t memory_bytes() const { return encoder_.memory_bytes(); }
  std::vector<std::vector<float>> pooled(std::span<const std::string> captions) {
    std::vector<TextIds> texts;
    for (const std::string& caption : captions)
      texts.push_back(padded_ids(*tokenizer_, caption, config_.num_positions, pad_));
    std::vector<std::vector<float>> made(captions.size());
    encoder_.encode(texts, [&](size_t i, std::span<const float> hidden) {
      const auto width = static_cast<size_t>(config_.hidden);
      const auto row = hidden.subspan(models::clip_pooled_token(config_, texts[i].ids) * width, width);
      made[i].assign(row.begin(), row.end());
    });
    return made;
  }

 private:
  TextEncoder::Structure parts() const {
    // The first name is that of transformers 4, the second that of transformers 5.
    const std::string table = first_existing(
        files_, {"text_model.embeddings.token_embedding.weight", "embeddings.token_embedding.weight"});
    const std::string outer = table.starts_with("text_model.") ? "text_model." : "";
    TextEncoder::Structure made{.width = config_.hidden,
                                .length = config_.num_positions,
                                .table = table,
                                .positions = outer + "embeddings.position_embedding.weight",
                                .layers = outer + "encoder.layers.",
                                .num_layers = config_.num_layers,
                                .outer = outer};
    made.grow_layer = [config = config_](nn::Builder& builder, const TextEncoder::Inputs& in) {
      return models::build_clip_layer(builder, config, in.hidden, 1);
    };
    made.grow_norm = [config = config_](nn::Builder& builder, ValueId hidden) {
      return builder.layer_norm("final_layer_norm", hidden, config.norm_eps);
    };
    return made;
  }

  models::ClipConfig config_;
  io::WeightFiles files_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  int32_t pad_;
  TextEncoder encoder_;
};

/// T5's encoder and its tokenizer.
class T5 {
 public:
  T5(const fs::path& model, const fs::path& tokenizer, int64_t num_tokens, const Compute& compute)
      : config_(models::read_t5_config(model / kModelConfig)),
        files_(model),
        tokenizer_(text::open_tokenizer(tokenizer)),
        bias_(read_bias(num_tokens)),
        encoder_(parts(num_tokens), files_, compute) {}

  int64_t memory_bytes() const { return encoder_.memory_bytes() + 4 * std::ssize(bias_); }
  TextEncoder& encoder() { return encoder_; }
  const TextEncoder& encoder() const { return encoder_; }
  std::string truncation_note(std::span<const std::string> captions) const {
    return truncation_sentence(captions, encoder_.length(), kTextTokens, kCut,
                               [&](const std::string& caption) { return num_ids(*tokenizer_, caption); });
  }
  const io::WeightFiles& files() const { return files_; }
  TextIds ids(const std::string& caption) const {
    return padded_ids(*tokenizer_, caption, encoder_.length(), static_cast<int32_t>(config_.pad_id));
  }

 private:
  std::vector<float> read_bias(int64_t num_tokens) const {
    constexpr const char* kName = "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight";
    const io::TensorView* table = files_.find(kName);
    const Shape shape = {config_.num_buckets, config_.num_heads};
    if (table == nullptr || table->shape != shape || !is_floating(table->dtype)) {
      user_error("{}: there is no tensor '{}' of shape {}; download the folder again", files_.path().string(),
                 kName, to_string(shape));
    }
    const std::vector<float> values = hub::floats_of(*table, 0, shape.num_elements());
    std::vector<float> bias = models::t5_bias(config_, values, num_tokens);
    bias.resize(bias.size() + engine::kInputSlack);
    return bias;
  }
  TextEncoder::Structure parts(int64_t num_tokens) const {
    TextEncoder::Structure made{
        .width = config_.hidden,
        .length = num_tokens,
        .table = first_existing(files_, {"shared.weight", "encoder.embed_tokens.weight"}),
        .layers = "encoder.block.",
        .num_layers = config_.num_layers,
        .outer = "encoder.",
        .heads = config_.num_heads};
    made.grow_layer = [config = config_](nn::Builder& builder, const TextEncoder::Inputs& in) {
      return models::build_t5_layer(builder, config, in.hidden, in.bias, 1);
    };
    made.grow_norm = [config = config_](nn::Builder& builder, ValueId hidden) {
      return builder.rms_norm("final_layer_norm", hidden, config.norm_eps);
    };
    made.bias = [this](int64_t) { return std::span<const float>(bias_); };
    return made;
  }

  models::T5Config config_;
  io::WeightFiles files_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::vector<float> bias_;
  TextEncoder encoder_;
};

class ClipAndT5 : public CaptionEncoder {
 public:
  ClipAndT5(const fs::path& folder, int64_t num_tokens, const Compute& compute)
      : clip_(folder / "text_encoder", folder / "tokenizer", compute),
        t5_(folder / "text_encoder_2", folder / "tokenizer_2", num_tokens, compute) {}

  const TextEncoder& text() const override { return t5_.encoder(); }
  int64_t pooled_width() const override { return clip_.width(); }
  uint64_t hash() const override {
    const uint64_t both[] = {io::fingerprint(clip_.files()), io::fingerprint(t5_.files())};
    return hash64(std::as_bytes(std::span(both)));
  }
  int64_t memory_bytes() const override { return clip_.memory_bytes() + t5_.memory_bytes(); }
  std::string truncation_note(std::span<const std::string> captions) const override {
    const std::string text = t5_.truncation_note(captions), pooled = clip_.truncation_note(captions);
    return text + (text.empty() || pooled.empty() ? "" : "\n") + pooled;
  }
  void encode(std::span<const std::string> captions, const Take& take) override {
    const std::vector<std::vector<float>> pooled = clip_.pooled(captions);
    std::vector<TextIds> texts;
    for (const std::string& caption : captions) texts.push_back(t5_.ids(caption));
    t5_.encoder().encode(texts, [&](size_t i, std::span<const float> hidden) { take(i, hidden, pooled[i]); });
  }

 private:
  Clip clip_;
  T5 t5_;
};

/// Qwen3 as a text encoder. The caption is rendered as a user message with thinking disabled.
class Qwen3 : public CaptionEncoder {
 public:
  Qwen3(const fs::path& folder, int64_t num_tokens, const Compute& compute)
      : config_(read_config(folder / "text_encoder/config.json")),
        files_(folder / "text_encoder"),
        tokenizer_(text::open_tokenizer(folder / "tokenizer")),
        pad_(pad_of(*tokenizer_, folder / "tokenizer")),
        prompts_(open_prompts(folder / "tokenizer", *tokenizer_)),
        bias_(static_cast<size_t>(config_.num_heads * num_tokens * num_tokens + engine::kInputSlack)),
        encoder_(parts(num_tokens), files_, compute) {}

  const TextEncoder& text() const override { return encoder_; }
  int64_t pooled_width() const override { return 0; }
  uint64_t hash() const override { return io::fingerprint(files_); }
  int64_t memory_bytes() const override { return encoder_.memory_bytes() + 4 * std::ssize(bias_); }
  std::string truncation_note(std::span<const std::string> captions) const override {
    return truncation_sentence(
        captions, encoder_.length(), kTextTokens, kCut,
        [&](const std::string& caption) { return num_ids(*tokenizer_, prompt_of(caption)); });
  }
  void encode(std::span<const std::string> captions, const Take& take) override {
    std::vector<TextIds> texts;
    for (const std::string& caption : captions)
      texts.push_back(padded_ids(*tokenizer_, prompt_of(caption), encoder_.length(), pad_));
    encoder_.encode(texts, [&](size_t i, std::span<const float> hidden) { take(i, hidden, {}); });
  }

 private:
  static constexpr int64_t kKept[] = {9, 18, 27};

  std::string prompt_of(const std::string& caption) const {
    return prompts_.prompt(text::Json::array({{{"role", "user"}, {"content", caption}}}), nullptr);
  }

  static models::DecoderConfig read_config(const fs::path& file) {
    models::DecoderConfig config = models::read_decoder_config(file);
    const bool sees_all = std::ranges::all_of(config.windows, [](int64_t window) { return window == 0; });
    if (config.family != "qwen3" || config.num_layers <= kKept[2] || !sees_all) {
      user_error(
          "{}: the text encoder must be a Qwen3 with more than {} layers and no sliding windows, but it is a "
          "{} with {} layers; use the text encoder of FLUX.2 klein",
          file.string(), kKept[2], config.family, config.num_layers);
    }
    return config;
  }
  static text::ChatRenderer open_prompts(const fs::path& folder, const text::Tokenizer& tokenizer) {
    const text::ChatSetup setup = text::read_chat_setup(folder, tokenizer);
    if (!setup.chat_template)
      user_error(
          "{}: no chat_template.jinja and no chat_template in tokenizer_config.json; download the folder "
          "again",
          folder.string());
    return text::ChatRenderer(text::Template(*setup.chat_template, setup.template_name),
                              {.bos_token = setup.bos_token,
                               .eos_token = setup.eos_token,
                               .variables = {{"enable_thinking", false}}});
  }

  TextEncoder::Structure parts(int64_t num_tokens) {
    TextEncoder::Structure made{.width = config_.hidden,
                                .length = num_tokens,
                                .table = "model.embed_tokens.weight",
                                .layers = "model.layers.",
                                .num_layers = kKept[2],
                                .heads = config_.num_heads,
                                .kept = {std::begin(kKept), std::end(kKept)}};
    made.grow_layer = [config = config_, num_tokens](nn::Builder& builder, const TextEncoder::Inputs& in) {
      const models::DecoderInputs rows{.positions = in.positions, .bias = in.bias, .context = num_tokens};
      return models::build_decoder_layer(builder, config, rows, in.hidden, 0);
    };
    made.bias = [this, num_tokens](int64_t count) { return causal_bias(count, num_tokens); };
    return made;
  }
  /// Returns an attention bias, 0 or kMaskedScore: a token attends to itself and to earlier tokens except
  /// padding.
  std::span<const float> causal_bias(int64_t count, int64_t num_tokens) {
    float* out = bias_.data();
    for (int64_t row = 0; row < config_.num_heads * num_tokens; ++row) {
      const int64_t seen = std::min(row % num_tokens + 1, count);
      std::fill_n(out, seen, 0.0F);
      std::fill_n(out + seen, num_tokens - seen, kMaskedScore);
      out += num_tokens;
    }
    return bias_;
  }

  models::DecoderConfig config_;
  io::WeightFiles files_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  int32_t pad_;
  text::ChatRenderer prompts_;
  std::vector<float> bias_;
  TextEncoder encoder_;
};

/// Returns the class name of component `part` in model_index.json; empty if there is none.
std::string class_of_part(const nlohmann::json& index, const char* part) {
  const auto found = index.find(part);
  if (found == index.end() || !found->is_array() || found->size() != 2 || !(*found)[1].is_string()) return "";
  return (*found)[1].get<std::string>();
}

std::unique_ptr<CaptionEncoder> open_encoder(const fs::path& folder, int64_t num_tokens,
                                             const Compute& compute) {
  const fs::path file = folder / kModelIndex;
  if (!fs::exists(file)) {
    user_error("'{}' has no model_index.json; use a folder in diffusers' layout{}", folder.string(),
               download_advice(folder));
  }
  const auto index =
      parse_json_object<nlohmann::json>(read_file(file, models::kMaxConfigBytes), file.string());
  const std::string first = class_of_part(index, "text_encoder"),
                    second = class_of_part(index, "text_encoder_2");
  if (first == "CLIPTextModel" && second == "T5EncoderModel")
    return std::make_unique<ClipAndT5>(folder, num_tokens, compute);
  if (first == "Qwen3ForCausalLM" && second.empty())
    return std::make_unique<Qwen3>(folder, num_tokens, compute);
  if (first.starts_with("Mistral3"))
    user_error(
        "{}: the text encoder {} (FLUX.2-dev) is not supported; use FLUX.2 klein 4B with the recipe "
        "klein-lora, or FLUX.1-dev with flux-lora",
        file.string(), first);
  user_error(
      "{}: expected text_encoder CLIPTextModel and text_encoder_2 T5EncoderModel, or text_encoder "
      "Qwen3ForCausalLM, got '{}' and '{}'",
      file.string(), first, second);
}

}  // namespace

TextCoder::TextCoder(const fs::path& model_folder, int64_t num_tokens, const Compute& compute)
    : encoder_(open_encoder(model_folder, num_tokens, compute)) {}

TextCoder::~TextCoder() = default;

int64_t TextCoder::text_width() const { return encoder_->text().width(); }
int64_t TextCoder::pooled_width() const { return encoder_->pooled_width(); }
int64_t TextCoder::num_tokens() const { return encoder_->text().length(); }
uint64_t TextCoder::hash() const { return encoder_->hash(); }
int64_t TextCoder::memory_bytes() const { return encoder_->memory_bytes(); }
std::string TextCoder::truncation_note(std::span<const std::string> captions) const {
  return encoder_->truncation_note(captions);
}
void TextCoder::encode(
    std::span<const std::string> captions,
    const std::function<void(size_t, std::span<const float>, std::span<const float>)>& take) {
  encoder_->encode(captions, take);
}

}  // namespace hearth::encoders
