#include "text/pipeline.h"

#include <algorithm>

#include "base/utf8.h"
#include "text/byte_level.h"

namespace hearth::text {

struct Pipeline::Scratch {
  SplitScratch split;
  ModelScratch model;
  std::string normalized;
};

/// Borrows scratch memory from the pool and returns it on destruction.
class Pipeline::ScratchLease {
 public:
  explicit ScratchLease(const Pipeline& owner) : owner_(owner) {
    {
      const std::lock_guard lock(owner.mutex_);
      if (!owner.scratch_pool_.empty()) {
        scratch_ = std::move(owner.scratch_pool_.back());
        owner.scratch_pool_.pop_back();
      }
    }
    if (!scratch_) scratch_ = std::make_unique<Scratch>();
  }
  ~ScratchLease() {
    const std::lock_guard lock(owner_.mutex_);
    owner_.scratch_pool_.push_back(std::move(scratch_));
  }
  ScratchLease(const ScratchLease&) = delete;
  ScratchLease& operator=(const ScratchLease&) = delete;
  Scratch& operator*() { return *scratch_; }

 private:
  const Pipeline& owner_;
  std::unique_ptr<Scratch> scratch_;
};

Pipeline::Pipeline(Parts parts)
    : normalizer_(std::move(parts.normalizer)),
      added_(std::move(parts.added), normalizer_),
      pre_tokenizer_(std::move(parts.pre_tokenizer)),
      model_(std::move(parts.model)),
      decoder_(std::move(parts.decoder)) {
  special_ = std::move(parts.special);
}

Pipeline::~Pipeline() = default;

void Pipeline::encode(std::string_view text, SpecialTokens special, std::vector<int32_t>& ids) const {
  ScratchLease scratch(*this);
  added_.split_raw(text, special, [&](std::string_view part, const AddedToken* token) {
    if (token != nullptr) return ids.push_back(token->id);
    const size_t start = part.data() == text.data() ? first_character(part).bytes : 0;
    encode_raw(part, start, special, *scratch, ids);
  });
}

void Pipeline::encode_raw(std::string_view text, size_t start, SpecialTokens special, Scratch& scratch,
                          std::vector<int32_t>& ids) const {
  if (normalizer_.empty()) return encode_normalized(text, start, special, scratch, ids);
  scratch.normalized.assign(text);
  normalizer_.apply(scratch.normalized, start, scratch.split.regex);
  encode_normalized(scratch.normalized, start, special, scratch, ids);
}

void Pipeline::encode_normalized(std::string_view text, size_t start, SpecialTokens special, Scratch& scratch,
                                 std::vector<int32_t>& ids) const {
  added_.split_normalized(text, special, [&](std::string_view part, const AddedToken* token) {
    if (token != nullptr) return ids.push_back(token->id);
    const auto before = static_cast<size_t>(part.data() - text.data());
    pre_tokenizer_.split(part, start - std::min(start, before), scratch.split,
                         [&](std::string_view piece) { encode_piece(model_, piece, scratch.model, ids); });
  });
}

std::string Pipeline::decode(std::span<const int32_t> ids) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    const AddedToken* added = added_.find(id);
    const std::string_view text = added != nullptr ? added->content : vocabulary_of(model_).token(id);
    if (!text.empty()) tokens.emplace_back(text);
  }
  return decoder_.decode(std::move(tokens));
}

int64_t Pipeline::vocab_size() const { return std::max<int64_t>(vocabulary_of(model_).size(), added_.end()); }

std::optional<int32_t> Pipeline::id_of(std::string_view token) const {
  if (const AddedToken* added = added_.find(token)) return added->id;
  if (!is_byte_level(model_)) return vocabulary_of(model_).find(token);
  const std::optional<std::string> bytes = from_byte_level(token);
  return bytes ? vocabulary_of(model_).find(*bytes) : std::nullopt;
}

std::string Pipeline::token(int32_t id) const {
  if (const AddedToken* added = added_.find(id)) return added->content;
  const std::string token(vocabulary_of(model_).token(id));
  const bool spelled = !is_byte_level(model_) || vocabulary_of(model_).hidden(id);
  return spelled ? token : to_byte_level(token);
}

bool Pipeline::is_special(int32_t id) const {
  const AddedToken* added = added_.find(id);
  return added != nullptr && added->special;
}

}  // namespace hearth::text
