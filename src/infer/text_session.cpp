#include "infer/text_session.h"

#include "base/error.h"

namespace hearth::infer {

TextSession::TextSession(hub::ModelFolder model, TextSessionOptions options)
    : model_(std::move(model)), options_(std::move(options)) {
  if (options_.has_tokenizer) tokenizer_ = text::open_tokenizer(model_.text);
}

std::vector<int32_t> TextSession::text_prompt(std::string_view text) const {
  HEARTH_CHECK(tokenizer_ != nullptr);
  std::vector<int32_t> ids = tokenizer_->special().prefix;
  if (!text.empty()) tokenizer_->encode(text, text::SpecialTokens::as_text, ids);
  if (ids.empty() && tokenizer_->bos()) ids.push_back(*tokenizer_->bos());
  return ids;
}

const text::ChatRenderer& TextSession::renderer() {
  if (renderer_) return *renderer_;
  const text::ChatSetup setup = text::read_chat_setup(model_.text, *tokenizer_);
  if (!setup.chat_template) {
    user_error(
        "the model in {} has no chat template; continue a text instead (hearth generate without --chat)",
        model_.text.string());
  }
  text::ChatOptions options = options_.chat;
  options.bos_token = setup.bos_token;
  options.eos_token = setup.eos_token;
  return renderer_.emplace(text::Template(*setup.chat_template, setup.template_name), std::move(options));
}

std::vector<int32_t> TextSession::chat_prompt(const text::Json& messages) {
  HEARTH_CHECK(tokenizer_ != nullptr);
  std::vector<int32_t> ids;
  tokenizer_->encode(renderer().prompt(messages, nullptr), text::SpecialTokens::parsed, ids);
  return ids;
}

const Generator& TextSession::open(size_t prompt_tokens, int64_t max_tokens) {
  const int64_t needed = static_cast<int64_t>(prompt_tokens) + max_tokens;
  const bool is_too_small = generator_ && options_.generator.slots == 0 && needed > generator_->num_slots();
  if (generator_ && !is_too_small) return *generator_;
  generator_.reset();
  GeneratorOptions options = options_.generator;
  if (options.slots == 0) options.slots = needed;
  return generator_.emplace(model_, options);
}

Answer TextSession::ask(std::span<const int32_t> prompt, const AnswerOptions& options,
                        FunctionRef<void(std::string_view)> emit) {
  open(prompt.size(), options.max_tokens);
  const int64_t kept = generator_->keep_prefix(prompt);
  return answer(*generator_, tokenizer_.get(), prompt.subspan(static_cast<size_t>(kept)), options, emit);
}

}  // namespace hearth::infer
