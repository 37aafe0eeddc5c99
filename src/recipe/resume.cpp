#include "recipe/resume.h"

#include <fmt/format.h>

#include <algorithm>

#include "recipe/fields.h"

namespace hearth::recipe {
namespace {

bool has_adapter(const Recipe& before, const Recipe&) { return before.adapter.wanted(); }

bool is_no_image_generation(const Recipe& before, const Recipe&) { return !is_image_generation(before); }

bool keeps_average(const Recipe& before, const Recipe& after) {
  return before.train.ema > 0 && after.train.ema > 0;
}

bool keeps_momentum(const Recipe& before, const Recipe& after) {
  return before.optimizer.momentum > 0 && after.optimizer.momentum > 0;
}

bool keeps_loss_scale(const Recipe& before, const Recipe& after) {
  return before.precision != DType::f16 && after.precision != DType::f16;
}

constexpr ResumeKey kKeys[] = {
    // Keys of devices, memory and loggers.
    {"threads"},
    {"device"},
    {"reserve"},
    {"devices"},
    {"parallel"},
    {"supervise"},
    {"self_test"},
    {"record"},
    {"memory"},
    {"precision", "between fp32 and bf16", keeps_loss_scale},
    {"matmul_precision"},
    {"saved_activations"},
    {"passes.off"},
    {"offload.states"},
    {"offload.weights"},
    {"offload.activations"},
    {"exchange.transport"},
    {"exchange.outer_lr"},
    {"exchange.outer_momentum"},
    {"thermal.limit"},
    {"power.limit"},
    {"log.to"},
    {"log.webhook"},
    {"log.project"},
    {"log.name"},
    // Keys with locations of files. Files may be moved; their contents must be the same (run/inputs.h).
    {"init", "of an adapter's base model", has_adapter},
    {"model.path"},
    {"model.config"},
    {"model.autoencoder"},
    {"model.tokenizer"},
    {"adapter.path"},
    {"data.path"},
    {"data.val_path"},
    {"data.classes"},
    {"data.cache"},
    {"diffuse.prior"},
    {"distill.from"},
    // Keys of the length of a run and of optimization.
    {"train.steps"},
    {"train.epochs"},
    {"train.batch", "except for models that generate images", is_no_image_generation},
    {"train.accumulate"},
    {"train.shards"},
    {"train.checkpoint_every"},
    {"train.memory_checkpoint_every"},
    {"train.keep_checkpoints"},
    {"train.eval_every"},
    {"train.eval_on_start"},
    {"train.log_every"},
    {"train.label_smoothing"},
    {"train.clip_norm"},
    {"train.ema", "from one value above 0 to another", keeps_average},
    {"train.early_stop"},
    {"bad_steps.max"},
    {"bad_steps.z_score"},
    {"optimizer.lr"},
    {"optimizer.momentum", "from one value above 0 to another", keeps_momentum},
    {"optimizer.nesterov"},
    {"optimizer.in_backward"},
    {"optimizer.weight_decay"},
    {"optimizer.beta1"},
    {"optimizer.beta2"},
    {"optimizer.eps"},
    {"optimizer.rates"},
    {"schedule.name"},
    {"schedule.warmup_steps"},
    {"schedule.step_size"},
    {"schedule.gamma"},
    {"schedule.min_lr"},
    {"model.dropout"},
    {"adapter.dropout"},
    {"quantize.qat"},
    {"quantize.group"},
    {"quantize.after_steps"},
    {"prune.sparsity"},
    {"prune.scope"},
    {"prune.from_step"},
    {"prune.to_step"},
    {"prune.every"},
    {"prune.drop"},
    {"dpo.beta"},
    {"dpo.label_smoothing"},
    {"distill.weight"},
    {"distill.temperature"},
    {"distill.loss"},
    {"distill.beta"},
    // Keys of reading, augmentation and evaluation of samples.
    {"data.threads"},
    {"data.keep_images"},
    {"data.bad_records"},
    {"data.crop_padding"},
    {"data.flip"},
    {"data.jitter"},
    {"data.scale"},
    {"segment.loss"},
    {"segment.class_weights"},
    {"segment.weights"},
    {"detect.mosaic"},
    {"detect.mixup"},
    {"detect.degrees"},
    {"detect.translate"},
    {"detect.shear"},
    {"detect.scale"},
    {"detect.hsv"},
    {"detect.plain_epochs"},
    {"detect.score"},
    {"detect.nms"},
    {"detect.max_detections"},
    {"detect.shown_score"},
    {"diffuse.sampling"},
    {"diffuse.mean"},
    {"diffuse.std"},
    {"diffuse.shift"},
    {"diffuse.mode_scale"},
    {"diffuse.weighting"},
    {"diffuse.min_snr"},
    {"diffuse.dropout"},
    {"diffuse.prior_weight"},
    {"diffuse.prompts"},
    {"diffuse.steps"},
    {"diffuse.guidance"},
    {"diffuse.judged"},
};

}  // namespace

std::span<const ResumeKey> resume_keys() { return kKeys; }

std::vector<std::string> changed_keys(const Recipe& before, const Recipe& after) {
  std::vector<std::string> changed;
  for (const Field& field : recipe_fields()) {
    if (field.write(before) != field.write(after)) changed.push_back(field.key);
  }
  return changed;
}

std::string fault_of_resume(const Recipe& before, const Recipe& after) {
  for (const Field& field : recipe_fields()) {
    const std::string was = field.write(before), is = field.write(after);
    if (was == is) continue;
    const auto found = std::ranges::find(resume_keys(), field.key, &ResumeKey::key);
    const bool is_known = found != resume_keys().end();
    if (is_known && (found->may_change == nullptr || found->may_change(before, after))) continue;
    return fmt::format("{0} cannot be changed when a run resumes{1}: it was {2} and is {3} now; try {0}={2}",
                       field.key, is_known ? fmt::format(" ({} it can)", found->condition) : "", was, is);
  }
  return "";
}

}  // namespace hearth::recipe
