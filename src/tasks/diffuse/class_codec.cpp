#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "tasks/diffuse/diffusion_data.h"

namespace hearth::tasks {
namespace {

/// Max number of class names listed in a message.
constexpr size_t kMaxListed = 20;

class ClassCodec : public DiffusionCodec {
 public:
  explicit ClassCodec(ClassCodecOptions options) : options_(std::move(options)) {}
  std::vector<Condition> conditions(std::span<const std::string> prompts) const override {
    std::vector<Condition> made;
    for (const std::string& prompt : prompts) made.push_back(condition(label_of(prompt)));
    return made;
  }
  Condition no_condition() const override { return condition(static_cast<int32_t>(options_.num_classes)); }
  data::Image image(std::span<const float> latents, Extent size) const override {
    if (!options_.open_autoencoder) return data::image_of(latents, options_.channels, size);
    if (!coder_) coder_ = options_.open_autoencoder();
    return coder_->decode(latents, size);
  }

 private:
  static Condition condition(int32_t label) { return {.label = label, .text = {}, .pooled = {}}; }
  int32_t label_of(const std::string& prompt) const {
    const std::vector<NamedClass>& classes = options_.classes;
    const auto found = std::find_if(classes.rbegin(), classes.rend(),
                                    [&](const NamedClass& known) { return known.name == prompt; });
    if (found != classes.rend()) return found->label;
    std::vector<std::string> names;
    for (const NamedClass& known : classes) names.push_back(known.name);
    const std::string advice = did_you_mean(prompt, names);
    const bool has_more = names.size() > kMaxListed;
    if (has_more) names.resize(kMaxListed);
    user_error("the prompt must be one of the model's classes ({}{}), got '{}'{}", fmt::join(names, ", "),
               has_more ? " and so on" : "", prompt, advice);
  }

  ClassCodecOptions options_;
  mutable std::unique_ptr<encoders::ImageCoder> coder_;
};

}  // namespace

std::vector<NamedClass> numbered(std::span<const std::string> names) {
  std::vector<NamedClass> classes;
  for (const std::string& name : names)
    classes.push_back({.name = name, .label = static_cast<int32_t>(classes.size())});
  return classes;
}

std::unique_ptr<DiffusionCodec> class_codec(ClassCodecOptions options) {
  return std::make_unique<ClassCodec>(std::move(options));
}

}  // namespace hearth::tasks
