// Text generation with a KV cache. One graph, the decoder with cached_attention, is compiled for two numbers
// of rows: kPrefillTokens for prefill chunks and 1 for decoding. Keys and values are persistent state with
// one slot per token, so both programs extend the same cache, and a new prompt reuses the chunks of a common
// prefix. The bits of a token's logits depend on the chunks before it, so only full chunks are reused. A step
// costs O(context) per token for attention.
#include "infer/generator.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/run_files.h"
#include "base/utf8.h"
#include "engine/gpu_options.h"
#include "engine/objective.h"
#include "hub/adapter.h"
#include "hub/weights.h"
#include "models/decoder/decoder.h"

namespace hearth::infer {
namespace {

using ir::ValueId;

/// Max tokens of a prefill chunk: a prompt is computed in chunks of this many tokens.
constexpr int64_t kPrefillTokens = 64;
constexpr int64_t kMaxGenerationConfigBytes = 1 << 22;

/// Computes the logits of the next token. All rows are tokens of one sequence. Inputs: tokens [rows];
/// positions [rows], -1 for padding; last [1], index of the row whose logits are computed; last_position [1],
/// the last position of the sequence, from which LongRoPE selects its factors.
class NextToken : public engine::Objective {
 public:
  NextToken(models::DecoderConfig config, int64_t slots) : config_(std::move(config)), slots_(slots) {}

  Graph build(nn::Builder& builder, engine::BatchShape shape) const override {
    const auto input = [&](const char* name, int64_t count) {
      return builder.input(name, {.dtype = DType::i32, .shape = {count}});
    };
    const ValueId tokens = input("tokens", shape.num_rows);
    const ValueId positions = input("positions", shape.num_rows);
    const ValueId last = input("last", 1);
    const ValueId last_position = input("last_position", 1);
    const models::DecoderOutputs out = models::build_decoder(builder, config_,
                                                             {.tokens = tokens,
                                                              .positions = positions,
                                                              .last_position = last_position,
                                                              .context = shape.num_rows,
                                                              .cache_slots = slots_});
    const ValueId row = builder.op("embedding", {last, out.hidden});
    const ValueId logits = builder.op("matmul", {row, out.head}, {{"transpose_b", int64_t{1}}});
    return {.inputs = {tokens, positions, last, last_position}, .outputs = {logits}};
  }

 private:
  models::DecoderConfig config_;
  int64_t slots_;
};

/// Appends eos_token_id of generation_config.json, which is a number or a list, to `ends`.
void add_generation_ends(const fs::path& file, std::vector<int32_t>& ends) {
  if (!fs::exists(file)) return;
  const auto json =
      parse_json_object<nlohmann::json>(read_file(file, kMaxGenerationConfigBytes), file.string());
  const auto found = json.find("eos_token_id");
  if (found == json.end()) return;
  for (const auto& id : found->is_array() ? *found : nlohmann::json::array({*found})) {
    if (id.is_number_integer()) ends.push_back(id.get<int32_t>());
  }
}

/// Passes a growing text to a callback piece by piece, up to the first stop text.
class Emitter {
 public:
  Emitter(const std::vector<std::string>& stops, FunctionRef<void(std::string_view)> emit)
      : stops_(stops), emit_(emit) {}

  /// Emits the new part of `text`, the full text so far. `last`: true if no more text follows. Returns true
  /// if a stop text was found.
  bool update(std::string_view text, bool last) {
    size_t end = std::string_view::npos;
    for (const std::string& stop : stops_) end = std::min(end, text.find(stop, done_));
    const bool stopped = end != std::string_view::npos;
    if (!stopped) end = last ? text.size() : safe_end(text);
    if (end > done_) emit_(text.substr(done_, end - done_));
    done_ = std::max(done_, end);
    return stopped;
  }
  /// Returns the number of bytes that were emitted.
  size_t num_bytes() const { return done_; }

 private:
  /// Returns the length of the prefix that can be emitted now: it ends before an incomplete UTF-8 character
  /// and before a possible start of a stop text.
  size_t safe_end(std::string_view text) const {
    size_t end = complete_prefix(text);
    for (const std::string& stop : stops_) {
      for (size_t length = std::min(stop.size() - 1, text.size() - done_); length > 0; --length) {
        if (!text.ends_with(std::string_view(stop).substr(0, length))) continue;
        end = std::min(end, text.size() - length);
        break;
      }
    }
    return end;
  }

  const std::vector<std::string>& stops_;
  FunctionRef<void(std::string_view)> emit_;
  size_t done_ = 0;
};

nn::Adapter adapter_of(const hub::ModelFolder& model) {
  if (model.adapter.empty()) return {};
  return hub::builder_adapter({.path = model.adapter.string()}, hub::read_adapter_config(model.adapter));
}

}  // namespace

Generator::Generator(models::DecoderConfig config, const nn::Adapter& adapter,
                     const GeneratorOptions& options)
    : config_(std::move(config)),
      slots_(options.slots),
      ids_(kPrefillTokens + 16),
      positions_(kPrefillTokens + 16),
      last_(16),
      last_position_(16) {
  for (const int64_t id : config_.eos_ids) ends_.push_back(static_cast<int32_t>(id));
  if (config_.tied_head) hub::check_untied(adapter);
  engine::EngineOptions engine{.objective = std::make_shared<NextToken>(config_, slots_),
                               .adapter = adapter,
                               .precision = options.precision,
                               .num_threads = options.compute.num_threads,
                               .winograd = options.compute.winograd};
  if (options.compute.gpu) engine::use_gpu(engine, *options.compute.gpu, options.compute.self_test);
  const int64_t sizes[] = {1, kPrefillTokens};
  engine_ = engine::evaluation_engine(std::move(engine), sizes);
}

Generator::Generator(const hub::ModelFolder& model, const GeneratorOptions& options)
    : Generator(models::read_decoder_config(model.model / kModelConfig), adapter_of(model), options) {
  add_generation_ends(model.model / "generation_config.json", ends_);
  hub::load_model(*engine_, model);
}

Generator Generator::untrained(models::DecoderConfig config, const GeneratorOptions& options) {
  Generator made(std::move(config), nn::Adapter(), options);
  made.engine_->initialize();
  return made;
}

bool Generator::is_end(int32_t id) const { return std::find(ends_.begin(), ends_.end(), id) != ends_.end(); }

void Generator::check(std::span<const int32_t> ids) const {
  HEARTH_CHECK(!ids.empty());
  if (std::ssize(tokens_) + std::ssize(ids) > slots_) {
    user_error(
        "prompt and answer have {1} tokens, but the KV cache holds {0}; raise the context (hearth generate "
        "--context)",
        slots_, tokens_.size() + ids.size());
  }
  for (const int32_t id : ids) {
    if (id < 0 || id >= config_.vocab_size)
      user_error("expected token ids from 0 to {}, got {}", config_.vocab_size - 1, id);
  }
}

double Generator::prompt_seconds(int64_t num_tokens) const {
  const auto num_pieces = static_cast<double>((num_tokens + kPrefillTokens - 1) / kPrefillTokens);
  return num_pieces * engine_->plan().evaluation_seconds({.num_rows = kPrefillTokens, .row_length = 0});
}

/// True if `num_more` tokens extend the context past the length at which LongRoPE switches to its long
/// factors. The cached keys are rotated with the short factors and must be computed again.
bool Generator::switches_to_long_rope(int64_t num_more) const {
  const auto& rope = config_.rope;
  const int64_t before = std::ssize(tokens_);
  return !rope.long_factor.empty() && before <= rope.original_positions &&
         before + num_more > rope.original_positions;
}

int64_t Generator::keep_prefix(std::span<const int32_t> ids) {
  const int64_t same = std::ranges::mismatch(tokens_, ids).in1 - tokens_.begin();
  num_prefilled_ = std::min({num_prefilled_, same, std::ssize(ids) - 1}) / kPrefillTokens * kPrefillTokens;
  // With LongRoPE the cached keys depend on the length of the full context, so none can be reused.
  if (!config_.rope.long_factor.empty()) num_prefilled_ = 0;
  tokens_.resize(static_cast<size_t>(num_prefilled_));
  return num_prefilled_;
}

std::span<const float> Generator::feed(std::span<const int32_t> ids) {
  check(ids);
  std::vector<int32_t> all;
  if (switches_to_long_rope(std::ssize(ids))) {
    all.swap(tokens_);
    num_prefilled_ = 0;
    all.insert(all.end(), ids.begin(), ids.end());
    ids = all;
  }
  const int64_t end = std::ssize(tokens_) + std::ssize(ids);
  while (!ids.empty()) {
    const auto count = ids.size() == 1 ? 1 : std::min<size_t>(ids.size(), kPrefillTokens);
    run(ids.first(count), end, count == 1 ? 1 : kPrefillTokens);
    ids = ids.subspan(count);
  }
  const std::span<const float> logits = engine_->output(0);
  logits_.assign(logits.begin(), logits.end());
  if (const auto cap = static_cast<float>(config_.head_cap); cap > 0) {
    for (float& logit : logits_) logit = cap * std::tanh(logit / cap);
  }
  return logits_;
}

/// Runs the model on the next tokens of the sequence. `end`: length of the sequence after all tokens of the
/// current feed(); `num_rows`: selects the program; at least the number of tokens, the rest is padding.
void Generator::run(std::span<const int32_t> ids, int64_t end, int64_t num_rows) {
  std::fill(ids_.begin(), ids_.end(), 0);
  std::fill(positions_.begin(), positions_.end(), -1);
  std::copy(ids.begin(), ids.end(), ids_.begin());
  for (size_t i = 0; i < ids.size(); ++i) positions_[i] = static_cast<int32_t>(tokens_.size() + i);
  last_[0] = static_cast<int32_t>(ids.size()) - 1;
  last_position_[0] = static_cast<int32_t>(end) - 1;
  if (num_prefilled_ == std::ssize(tokens_) && std::ssize(ids) == kPrefillTokens)
    num_prefilled_ += kPrefillTokens;
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  engine_->evaluate({{{"tokens", ids_.data()},
                      {"positions", positions_.data()},
                      {"last", last_.data()},
                      {"last_position", last_position_.data()}},
                     num_rows});
}

Answer answer(Generator& generator, const text::Tokenizer* tokenizer, std::span<const int32_t> prompt,
              const AnswerOptions& options, FunctionRef<void(std::string_view)> emit) {
  Answer result;
  Sampler sampler(options.sampler);
  Emitter emitter(options.stop, emit);
  std::span<const float> logits = generator.feed(prompt);
  std::vector<int32_t> all(generator.tokens().begin(), generator.tokens().end());
  const size_t prompt_bytes = tokenizer == nullptr ? 0 : tokenizer->decode(all).size();
  const auto max_length = std::min(std::ssize(all) + options.max_tokens, generator.num_slots());
  while (std::ssize(all) < max_length) {
    const int32_t id = sampler.next(logits, all);
    result.ended = generator.is_end(id) || (tokenizer != nullptr && tokenizer->eos() == id);
    if (result.ended) break;
    result.ids.push_back(id);
    all.push_back(id);
    if (tokenizer != nullptr) {
      result.text = tokenizer->decode(all);
      result.text.erase(0, std::min(prompt_bytes, result.text.size()));
      result.ended = emitter.update(result.text, false);
    }
    if (result.ended) break;
    if (std::ssize(all) < max_length) logits = generator.feed({&id, 1});
  }
  if (!result.ended) emitter.update(result.text, true);
  result.text.resize(emitter.num_bytes());
  return result;
}

}  // namespace hearth::infer
