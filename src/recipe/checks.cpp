#include "recipe/checks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "recipe/log_keys.h"
#include "recipe/prune_keys.h"

namespace hearth::recipe {
namespace {

/// Max number of entries of model.hidden. Limits the planning time, which grows with the square of the number
/// of layers.
constexpr int64_t kMaxLayers = 1024;

void check_pixels(const Recipe& recipe, const KeyLocations& locations) {
  const int64_t channels = recipe.data.channels;
  if (channels == 2 && data_kind(recipe.data.kind) != DataKind::tensors) {
    user_error("expected 1 (gray) or 3 (color) for data.channels, got 2 in {}; try 3",
               locations.of("data.channels"));
  }
  for (const auto& [key, values] :
       {std::pair("data.mean", &recipe.data.mean), std::pair("data.std", &recipe.data.std)}) {
    const int64_t count = std::ssize(*values);
    if (count != 1 && count != channels) {
      user_error("expected {}{} for {}, one per channel, got {} in {}; try [{}]",
                 channels == 1 ? "" : "1 or ",
                 channels == 1 ? "1 number" : fmt::format("{} numbers", channels), key, count,
                 locations.of(key), fmt::join(std::vector<double>(static_cast<size_t>(channels), 0.5), ", "));
    }
  }
  for (const float std : recipe.data.std) {
    if (!(std > 0)) {
      user_error("expected numbers above 0 for data.std, got {} in {}; try [0.5]", std,
                 locations.of("data.std"));
    }
  }
}

void check_quantize(const Recipe& recipe, const KeyLocations& locations) {
  const QatScheme scheme = recipe.quantize.qat;
  const bool rounds = scheme != QatScheme::none;
  if (!rounds && recipe.quantize.after_steps > 0) {
    user_error("{}: quantize.after_steps needs a format in quantize.qat; set quantize.qat=q4_0",
               locations.of("quantize.after_steps"));
  }
  if (recipe.quantize.group > 0 && !has_group(scheme)) {
    user_error("{}: quantize.group is for quantize.qat=int4 and 8da4w, but quantize.qat is '{}'; remove it",
               locations.of("quantize.group"), name_of(scheme));
  }
  if (rounds && !is_text(recipe)) {
    user_error(
        "{}: quantize.qat rounds the linear layers of a language model, but the model is {}; remove it",
        locations.of("quantize.qat"), model_name(recipe));
  }
  if (!rounds || !recipe.adapter.wanted()) return;
  if (formats_of(scheme).blocks != BlockFormat::none) {
    user_error(
        "{}: quantize.qat={} rounds weights that train, but an adapter freezes them; remove quantize.qat and "
        "train on a base that is exported with --type {}",
        locations.of("quantize.qat"), name_of(scheme), name_of(scheme));
  }
  if (!recipe.adapter.quantize.empty()) {
    user_error("{}: quantize.qat and adapter.quantize both set the format of frozen weights; remove one",
               locations.of("quantize.qat"));
  }
}

/// Checks the entries of model.widths.
void check_widths(const Recipe& recipe, const KeyLocations& locations) {
  const std::vector<std::string>& widths = recipe.model.widths;
  if (!widths.empty() && (is_text(recipe) || is_image_generation(recipe))) {
    user_error(
        "{}: model.widths is for image models that are built in; remove it, and set the sizes in the model's "
        "config.json",
        locations.of("model.widths"));
  }
  if (std::ssize(widths) > kMaxLayers)
    user_error("expected at most {} entries in model.widths, got {} in {}", kMaxLayers, widths.size(),
               locations.of("model.widths"));
  for (const std::string& text : widths) {
    const size_t equals = text.rfind('=');
    int64_t channels = 0;
    const char* end = text.data() + text.size();
    const bool is_pair = equals != text.npos && equals > 0;
    const auto read = std::from_chars(is_pair ? text.data() + equals + 1 : end, end, channels);
    if (read.ec != std::errc() || read.ptr != end || channels < 1)
      user_error("expected model.widths like [layer1.0.conv1=48], got '{}' in {}", text,
                 locations.of("model.widths"));
  }
}

void check_matmul_precision(const Recipe& recipe, const KeyLocations& locations) {
  if (recipe.matmul_precision == MatmulPrecision::same) return;
  const std::string where = locations.of("matmul_precision");
  const std::string_view name = name_of(recipe.matmul_precision);
  if (!is_text(recipe) && !is_image_generation(recipe)) {
    user_error("{}: matmul_precision={} is for transformers, but the model is {}; set matmul_precision=same",
               where, name, model_name(recipe));
  }
  if (recipe.precision == DType::f16) {
    user_error("{}: matmul_precision={} needs precision bf16 or fp32, but it is fp16; set precision=bf16",
               where, name);
  }
  if (!recipe.adapter.quantize.empty()) {
    user_error(
        "{}: matmul_precision={} rounds unquantized weights, but adapter.quantize is {}; remove one of the "
        "two",
        where, name, recipe.adapter.quantize);
  }
}

void check_text(const Recipe& recipe, const KeyLocations& locations) {
  if (data_kind(recipe.data.kind) == DataKind::text && !is_text(recipe)) {
    user_error("{}: text needs a language model; set model=FOLDER, or model.config for a new one",
               locations.of("data.kind"));
  }
  if (recipe.adapter.wanted() && !is_text(recipe) && !is_image_generation(recipe)) {
    user_error(
        "{}: the adapter needs a language model, but model is not set; set model=FOLDER, a Hugging Face "
        "folder",
        locations.of(recipe.adapter.path.empty() ? "adapter.name" : "adapter.path"));
  }
  if (recipe.adapter.wanted() && recipe.adapter.targets.empty()) {
    user_error("{}: adapter.targets is empty; set adapter.targets=all-linear",
               locations.of("adapter.targets"));
  }
  if (!recipe.model.path.empty() && !recipe.model.config.empty()) {
    user_error("{}: both model.path (existing weights) and model.config (new model) are set; remove one",
               locations.of("model.config"));
  }
  for (const std::string& field : recipe.data.fields) {
    if (const size_t equals = field.find('=');
        equals != field.npos && equals > 0 && equals + 1 < field.size())
      continue;
    user_error("expected data.fields like [prompt=question, completion=answer], got '{}' in {}", field,
               locations.of("data.fields"));
  }
}

void check_pairs(const Recipe& recipe, const KeyLocations& locations) {
  if (!is_text(recipe)) {
    user_error(
        "expected model.path, a language model, for train.objective=dpo, got none in {}; try model=FOLDER",
        locations.of("train.objective"));
  }
  const auto expect = [&](bool holds, const char* key, std::string_view value, std::string_view got) {
    if (holds) return;
    user_error("expected {0}={1} for train.objective=dpo, got {2} in {3}; try {0}={1}", key, value, got,
               locations.of(key));
  };
  const Data& data = recipe.data;
  expect(!data.packing, "data.packing", "false", "true");
  expect(data.format == RecordFormat::preference, "data.format", name_of(RecordFormat::preference),
         name_of(data.format));
  expect(!data.train_on_prompt, "data.train_on_prompt", "false", "true");
  expect(data.overlong != Overlong::split, "data.overlong", name_of(Overlong::truncate),
         name_of(data.overlong));
}

/// Throws a UserError if a distill key has no effect with the other keys.
void check_distill(const Recipe& recipe, const KeyLocations& locations) {
  const Distill& distill = recipe.distill;
  const Distill unset;
  for (const auto& [key, is_set] :
       {std::pair("distill.weight", distill.weight != unset.weight),
        std::pair("distill.temperature", distill.temperature != unset.temperature),
        std::pair("distill.loss", distill.loss != unset.loss),
        std::pair("distill.beta", distill.beta != unset.beta),
        std::pair("distill.top_k", distill.top_k != unset.top_k),
        std::pair("distill.quantize", distill.quantize != unset.quantize)}) {
    if (is_set && distill.from.empty())
      user_error("{0}: {1} has no effect without a teacher; set distill.from, or remove {1}",
                 locations.of(key), key);
  }
  if (distill.loss != Divergence::jsd && distill.beta != unset.beta) {
    user_error(
        "{}: distill.beta has no effect for distill.loss={}; set distill.loss=jsd, or remove distill.beta",
        locations.of("distill.beta"), name_of(distill.loss));
  }
}

/// Pipeline: divides the batch of an update into micro-batches if train.accumulate is 1. Stages compute
/// different micro-batches at the same time, so more micro-batches mean less idle time. Chooses four per
/// stage, or the next smaller number that divides train.batch.
void fill_pipeline(Recipe& recipe, const KeyLocations& locations) {
  if (recipe.train.shards > 1) {
    user_error("expected train.shards=1 for parallel=pipeline, got {} in {}; try parallel=data",
               recipe.train.shards, locations.of("train.shards"));
  }
  recipe.train.shards = 1;
  if (recipe.devices == 1 || recipe.train.accumulate > 1) return;
  for (int64_t count = 4 * recipe.devices; count > 1; --count) {
    // Avoids micro-batches of a single row, over which batch norm has no variance.
    if (recipe.train.batch % count != 0 || (recipe.train.batch == count && count > 2)) continue;
    recipe.train.batch /= count;
    recipe.train.accumulate = count;
    return;
  }
  user_error(
      "parallel=pipeline needs several micro-batches per update, got {} x {} in {}; try train.accumulate={}",
      recipe.train.accumulate, recipe.train.batch, locations.of("train.accumulate"), 4 * recipe.devices);
}

/// Throws a UserError for settings that all-reduce through NCCL or RCCL does not support.
void check_transport(const Recipe& recipe, const KeyLocations& locations) {
  if (recipe.exchange.transport == Transport::host || recipe.devices == 1) return;
  const auto expect = [&](bool holds, const char* key, std::string_view value, std::string_view got) {
    if (holds) return;
    user_error(
        "expected {0}={1} for exchange.transport={2}, got {3} in {4}; try {0}={1}, or "
        "exchange.transport=host",
        key, value, name_of(recipe.exchange.transport), got, locations.of(key));
  };
  expect(recipe.device != kCpu, "device", "gpu", recipe.device);
  expect(recipe.parallel == Parallel::data || recipe.parallel == Parallel::zero1, "parallel",
         name_of(Parallel::data), name_of(recipe.parallel));
  // Setting more shards than devices requests results that do not depend on the number of devices, bit for
  // bit. NCCL cannot ensure this.
  expect(recipe.train.shards == recipe.devices, "train.shards", std::to_string(recipe.devices),
         std::to_string(recipe.train.shards));
  const bool rounds = recipe.exchange.compress == Compress::bf16 || recipe.exchange.compress == Compress::fp8;
  expect(!rounds, "exchange.compress", name_of(Compress::none), name_of(recipe.exchange.compress));
  expect(!recipe.offload.states, "offload.states", "false", "true");
  expect(!recipe.offload.weights, "offload.weights", "false", "true");
}

/// Throws a UserError if stages of a pipeline would have to store saved activations in fp8.
void check_saved_activations(const Recipe& recipe, const KeyLocations& locations) {
  if (recipe.saved_activations != SavedActivations::fp8 || recipe.parallel != Parallel::pipeline) return;
  user_error("saved_activations=fp8 in {} does not support parallel=pipeline; set saved_activations=full",
             locations.of("saved_activations"));
}

/// Throws a UserError for settings that gradient compression and local steps do not support.
void check_exchange(const Recipe& recipe, const KeyLocations& locations) {
  const bool is_local = recipe.exchange.local_steps > 1;
  const bool compresses = recipe.exchange.compress != Compress::none;
  const std::string_view compress = name_of(recipe.exchange.compress);
  const std::string wish = is_local     ? fmt::format("exchange.local_steps={}", recipe.exchange.local_steps)
                           : compresses ? fmt::format("exchange.compress={}", compress)
                                        : "";
  const auto expect = [&](bool holds, const char* key, std::string_view value, std::string_view got) {
    if (holds) return;
    user_error("expected {0}={1} for {2}, got {3} in {4}; try {0}={1}", key, value, wish, got,
               locations.of(key));
  };
  if (wish.empty()) return;
  expect(recipe.parallel == Parallel::data, "parallel", name_of(Parallel::data), name_of(recipe.parallel));
  if (compresses)
    expect(recipe.precision != DType::f16, "precision", name_of(DType::bf16), name_of(recipe.precision));
  if (!is_local) return;
  expect(!compresses, "exchange.compress", name_of(Compress::none), compress);
  expect(recipe.train.ema == 0, "train.ema", "0", "a decay");
  expect(!recipe.offload.states, "offload.states", "false", "true");
  expect(!recipe.offload.weights, "offload.weights", "false", "true");
}

/// Throws a UserError if data.path is set but data.kind=shapes ignores it. Not if the user chose data.kind
/// too: as an override, or in the same recipe file as data.path.
void check_path_of_shapes(const Recipe& recipe, const KeyLocations& locations) {
  if (data_kind(recipe.data.kind) != DataKind::shapes || recipe.data.path.empty()) return;
  const bool is_meant = locations.is_override("data.path") ? !locations.is_override("data.kind")
                                                           : !locations.contains("data.kind");
  if (!is_meant) return;
  const fs::path extension = recipe.data.path.extension();
  if (extension == ".txt" || extension == ".jsonl" || extension == ".json") {
    user_error(
        "{}: data.path={} needs a language model, but model is not set; set model=FOLDER, a Hugging Face "
        "folder",
        locations.of("data.path"), recipe.data.path.string());
  }
  user_error(
      "data.path={} would not be read: data.kind=shapes generates its images ({}); set data.kind=folder (a "
      "folder per class), masks or boxes",
      recipe.data.path.string(), locations.of("data.path"));
}

/// Replaces data.normalize=imagenet or half by data.normalize=given with the corresponding data.mean and
/// data.std.
void set_normalization(Recipe& recipe, const KeyLocations& locations) {
  Data& data = recipe.data;
  if (data.normalize == Normalize::half) {
    data.mean = data.std = {0.5F};
  } else if (data.normalize == Normalize::imagenet) {
    if (data.channels != 3)
      user_error(
          "data.normalize=imagenet is for color images, but data.channels is {} in {}; set "
          "data.normalize=dataset",
          data.channels, locations.of("data.normalize"));
    data.mean = {0.485F, 0.456F, 0.406F};
    data.std = {0.229F, 0.224F, 0.225F};
  } else {
    return;
  }
  data.normalize = Normalize::given;
}

/// Sets defaults of data keys that depend on train.objective=dpo.
void set_objective_defaults(Recipe& recipe, const KeyLocations& locations) {
  if (!has_pairs(recipe)) return;
  if (!locations.contains("data.packing")) recipe.data.packing = false;
  if (recipe.data.format == RecordFormat::detect) recipe.data.format = RecordFormat::preference;
}

/// Sets train.shards. With several devices and train.accumulate=1, divides the batch into one micro-batch per
/// shard. Throws a UserError if the devices cannot share an update equally.
void distribute_update(Recipe& recipe, const KeyLocations& locations) {
  if (recipe.devices > 1 && recipe.device.find(':') != std::string::npos) {
    user_error("expected device=cpu, gpu or emulated for devices={}, got {} in {}; try device={}",
               recipe.devices, recipe.device, locations.of("device"),
               recipe.device.substr(0, recipe.device.find(':')));
  }
  if (recipe.parallel == Parallel::pipeline) return fill_pipeline(recipe, locations);
  if (recipe.train.shards == 0) recipe.train.shards = recipe.devices;
  if (num_usable_devices(recipe, static_cast<int>(recipe.devices)) != recipe.devices) {
    user_error("expected train.shards to be devices={} times 1, 2, 4, ..., got {} in {}; set train.shards={}",
               recipe.devices, recipe.train.shards, locations.of("train.shards"), recipe.devices);
  }
  if (recipe.train.accumulate == 1 && recipe.train.batch % recipe.train.shards == 0) {
    recipe.train.batch /= recipe.train.shards;
    recipe.train.accumulate = recipe.train.shards;
  }
  if (recipe.train.accumulate % recipe.train.shards == 0) return;
  const int64_t rounded = (recipe.train.accumulate / recipe.train.shards + 1) * recipe.train.shards;
  user_error(
      "expected train.accumulate to be a multiple of {} for devices={} and train.shards={}, got {} in {}; "
      "try train.accumulate={}",
      recipe.train.shards, recipe.devices, recipe.train.shards, recipe.train.accumulate,
      locations.of("train.accumulate"), rounded);
}

}  // namespace

/// The override `distill.from=` removes the teacher: drops the other keys of distillation, except overrides.
void drop_removed_teacher(Recipe& recipe, const KeyLocations& locations) {
  if (!recipe.distill.from.empty() || !locations.is_override("distill.from")) return;
  const auto is_override = [&](const char* key) { return locations.is_override(key); };
  constexpr std::array kKeys = {"distill.weight", "distill.temperature", "distill.loss",
                                "distill.beta",   "distill.top_k",       "distill.quantize"};
  if (std::ranges::none_of(kKeys, is_override)) recipe.distill = {};
}

void set_dependent_values(Recipe& recipe, const KeyLocations& locations) {
  drop_removed_teacher(recipe, locations);
  if (is_text(recipe)) recipe.data.kind = name_of(DataKind::text);
  set_objective_defaults(recipe, locations);
  set_normalization(recipe, locations);
  distribute_update(recipe, locations);
}

void check(const Recipe& recipe, const KeyLocations& locations) {
  check_text(recipe, locations);
  check_quantize(recipe, locations);
  check_matmul_precision(recipe, locations);
  check_prune(recipe, locations);
  check_log(recipe, locations);
  check_transport(recipe, locations);
  check_saved_activations(recipe, locations);
  check_exchange(recipe, locations);
  if (has_pairs(recipe)) check_pairs(recipe, locations);
  check_distill(recipe, locations);
  if (recipe.optimizer.nesterov && recipe.optimizer.momentum == 0) {
    user_error("expected optimizer.momentum above 0 for optimizer.nesterov, got 0 in {}; try 0.9",
               locations.of("optimizer.nesterov"));
  }
  const bool shards = recipe.parallel == Parallel::zero1 || recipe.parallel == Parallel::sharded;
  if (shards && recipe.train.ema > 0) {
    user_error("expected train.ema=0 for parallel={}, got {} in {}; try parallel=data",
               name_of(recipe.parallel), recipe.train.ema, locations.of("parallel"));
  }
  if (recipe.optimizer.in_backward &&
      (recipe.train.accumulate > 1 || recipe.train.clip_norm > 0 || recipe.precision == DType::f16)) {
    user_error(
        "optimizer.in_backward needs train.accumulate=1, train.clip_norm=0 and precision fp32 or bf16, but "
        "they are {}, {} and {} in {}; set optimizer.in_backward=false",
        recipe.train.accumulate, recipe.train.clip_norm, name_of(recipe.precision),
        locations.of("optimizer.in_backward"));
  }
  if (const DataKind kind = data_kind(recipe.data.kind);
      kind != DataKind::shapes && recipe.data.path.empty()) {
    const bool text = kind == DataKind::text;
    user_error("expected data.path, the {} that holds the data of kind {}, got none in {}; try {}",
               text ? "file" : "folder", recipe.data.kind, locations.of("data.kind"),
               text ? "data=FILE.jsonl or data=FILE.txt" : "data.path=DIR");
  }
  check_path_of_shapes(recipe, locations);
  const int64_t num_names = std::ssize(recipe.model.class_names);
  if (recipe.model.num_classes > 0 && num_names > recipe.model.num_classes) {
    user_error(
        "model.class_names has {} names, but model.num_classes is {} in {}; leave model.num_classes out",
        num_names, recipe.model.num_classes, locations.of("model.num_classes"));
  }
  if (std::ssize(recipe.model.hidden) > kMaxLayers) {
    user_error("expected at most {} widths in model.hidden, got {} in {}; try [512, 256]", kMaxLayers,
               recipe.model.hidden.size(), locations.of("model.hidden"));
  }
  for (const int64_t width : recipe.model.hidden) {
    if (width < 1 || width > 1 << 20) {
      user_error("expected widths from 1 to {} in model.hidden, got {} in {}; try [512, 256]", 1 << 20, width,
                 locations.of("model.hidden"));
    }
  }
  if (recipe.schedule.name == ScheduleKind::onecycle && recipe.schedule.warmup_steps > 0) {
    user_error("onecycle includes a warm-up, but schedule.warmup_steps is {} in {}; set it to 0",
               recipe.schedule.warmup_steps, locations.of("schedule.warmup_steps"));
  }
  if (recipe.data.balance && !recipe.data.shuffle) {
    user_error("expected data.shuffle=true for data.balance, got false in {}; try data.shuffle=true",
               locations.of("data.shuffle"));
  }
  check_pixels(recipe, locations);
  check_widths(recipe, locations);
}

}  // namespace hearth::recipe
