#include "infer/generator.h"

#include "base/error.h"
#include "infer/answer_text.h"

namespace hearth::infer {
namespace {

CachedDecoderOptions decoder_options(const GeneratorOptions& options) {
  return {.tokens_per_sequence = options.slots, .compute = options.compute, .precision = options.precision};
}

}  // namespace

Generator::Generator(const hub::ModelFolder& model, const GeneratorOptions& options)
    : decoder_(model, decoder_options(options)) {}

Generator::Generator(models::DecoderConfig config, const GeneratorOptions& options)
    : decoder_(std::move(config), decoder_options(options)) {}

double Generator::prompt_seconds(int64_t num_tokens) const {
  constexpr int64_t kChunk = CachedDecoder::kChunk;
  const auto num_chunks = static_cast<double>((num_tokens + kChunk - 1) / kChunk);
  return num_chunks * decoder_.engine().plan().evaluation_seconds({.num_rows = kChunk, .row_length = 0});
}

int64_t Generator::keep_prefix(std::span<const int32_t> ids) {
  return decoder_.keep_reusable(sequence_, ids);
}

std::span<const float> Generator::feed(std::span<const int32_t> ids) {
  HEARTH_CHECK(!ids.empty());
  const int64_t num_tokens = std::ssize(sequence_.tokens) + std::ssize(ids);
  if (num_tokens > num_slots()) {
    user_error(
        "prompt and answer have {1} tokens, but the KV cache holds {0}; raise the context (hearth generate "
        "--context)",
        num_slots(), num_tokens);
  }
  decoder_.check_ids(ids);
  decoder_.append(sequence_, ids);
  decoder_.run_pending(sequence_);
  return decoder_.logits(0);
}

Answer answer(Generator& generator, const text::Tokenizer* tokenizer, std::span<const int32_t> prompt,
              const AnswerOptions& options, FunctionRef<void(std::string_view)> emit) {
  Answer result;
  Sampler sampler(options.sampler);
  std::span<const float> logits = generator.feed(prompt);
  AnswerText text(tokenizer, generator.tokens(), options.stop);
  const auto emit_piece = [&](std::string_view piece) {
    if (!piece.empty()) emit(piece);
  };
  std::vector<int32_t> all(generator.tokens().begin(), generator.tokens().end());
  const auto max_length = std::min(std::ssize(all) + options.max_tokens, generator.num_slots());
  while (std::ssize(all) < max_length) {
    const int32_t id = sampler.next(logits, all);
    result.ended = generator.is_end(id) || (tokenizer != nullptr && tokenizer->eos() == id);
    if (result.ended) break;
    result.ids.push_back(id);
    all.push_back(id);
    emit_piece(text.add(id));
    result.ended = text.is_stopped();
    if (result.ended) break;
    if (std::ssize(all) < max_length) logits = generator.feed({&id, 1});
  }
  emit_piece(text.finish());
  result.text = text.text();
  return result;
}

}  // namespace hearth::infer
