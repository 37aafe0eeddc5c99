#include "train/recipe.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "train/language_model.h"
#include "train/recipe_fields.h"
#include "train/recipe_yaml.h"

namespace hearth::train {
namespace {

/// Names that other tools use for the same thing.
constexpr std::pair<const char*, const char*> kAliases[] = {
    {"model", "model.name"},
    {"lr", "optimizer.lr"},
    {"learning_rate", "optimizer.lr"},
    {"batch_size", "train.batch"},
    {"epochs", "train.epochs"},
    {"num_train_epochs", "train.epochs"},
    {"max_steps", "train.steps"},
    {"steps", "train.steps"},
    {"gradient_accumulation_steps", "train.accumulate"},
    {"data", "data.kind"},
    {"optimizer", "optimizer.name"},
    {"schedule", "schedule.name"},
    {"max_grad_norm", "train.clip_norm"},
    {"model_name_or_path", "model.path"},
    {"base_model", "model.path"},
    {"num_epochs", "train.epochs"},
    {"micro_batch_size", "train.batch"},
    {"per_device_train_batch_size", "train.batch"},
    {"cutoff_len", "data.context"},
    {"sequence_len", "data.context"},
    {"max_seq_len", "data.context"},
    {"max_seq_length", "data.context"},
    {"max_length", "data.context"},
    {"packing", "data.packing"},
    {"sample_packing", "data.packing"},
    {"template", "data.template"},
    {"chat_template", "data.template"},
    {"train_on_prompt", "data.train_on_prompt"},
    {"train_on_inputs", "data.train_on_prompt"},
    {"val_size", "data.val_share"},
    {"val_set_size", "data.val_share"},
    {"dataset_prepared_path", "data.cache"},
    {"weight_decay", "optimizer.weight_decay"},
    {"adapter", "adapter.name"},
    {"lora_r", "adapter.rank"},
    {"lora_rank", "adapter.rank"},
    {"lora_alpha", "adapter.alpha"},
    {"lora_dropout", "adapter.dropout"},
    {"lora_target", "adapter.targets"},
    {"lora_target_modules", "adapter.targets"},
    {"target_modules", "adapter.targets"},
    {"use_rslora", "adapter.rslora"},
    {"rl", "train.objective"},
    {"rl_beta", "dpo.beta"},
    {"pref_beta", "dpo.beta"}};

/// Where each key of a recipe was given: FILE:LINE, or an override.
class Places {
 public:
  explicit Places(std::string file) : file_(std::move(file)) {}
  void set(const std::string& key, const std::string& where) { where_[key] = where; }
  bool contains(const std::string& key) const { return where_.contains(key); }
  const std::string& of(const std::string& key) const {
    const auto found = where_.find(key);
    return found == where_.end() ? file_ : found->second;
  }

 private:
  std::string file_;
  std::map<std::string, std::string> where_;
};

/// A value as a message shows it: on one line, and not longer than is needed to find it.
std::string shown(const YAML::Node& value) {
  if (value.IsNull()) return "nothing";
  if (value.IsSequence()) return fmt::format("a list of {}", value.size());
  if (!value.IsScalar()) return "keys";
  constexpr size_t kLongest = 60;
  const std::string& text = value.Scalar();
  const std::string quoted = yaml_quoted(std::string_view(text).substr(0, kLongest));
  return fmt::format("'{}{}'", quoted.substr(1, quoted.size() - 2), text.size() > kLongest ? "..." : "");
}

std::string section_of(const std::string& key) { return key.substr(0, key.find('.') + 1); }
std::string leaf_of(const std::string& key) { return key.substr(key.find('.') + 1); }

/// The key that was probably meant: one of that name in another section, else the one spelt nearest.
std::optional<std::string> likely_key(const std::string& key) {
  std::map<std::string, std::string> meant;
  for (const auto& [alias, name] : kAliases) meant.emplace(alias, name);
  std::vector<std::string> keys;
  for (const Field& field : recipe_fields()) {
    meant.emplace(leaf_of(field.key), field.key);
    meant.emplace(field.key, field.key);
    keys.push_back(field.key);
  }
  if (const auto found = meant.find(leaf_of(key)); found != meant.end()) return found->second;
  if (key.find('.') != std::string::npos) return nearest_name(key, keys);
  std::vector<std::string> names;
  for (const auto& [name, full] : meant) names.push_back(name);
  const auto near = nearest_name(key, names);
  return near ? std::optional(meant.at(*near)) : std::nullopt;
}

/// model=FOLDER and data=FILE name files where they name neither a model nor a kind of data: those have no
/// slash and no extension.
std::string meant_key(const std::string& key, const YAML::Node& value) {
  if ((key != "model" && key != "data") || !value.IsScalar()) return key;
  const std::string& text = value.Scalar();
  std::error_code ignored;
  const bool is_file =
      text.find('/') != std::string::npos || fs::path(text).has_extension() || fs::exists(text, ignored);
  return is_file ? key + ".path" : key;
}

const Field* find_field(std::string key) {
  std::replace(key.begin(), key.end(), '-', '_');
  for (const auto& [alias, name] : kAliases) {
    if (key == alias) key = name;
  }
  for (const Field& field : recipe_fields()) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

/// The first field of a section such as 'train', or null.
const Field* first_of_section(const std::string& name) {
  for (const Field& field : recipe_fields()) {
    if (section_of(field.key) == name + ".") return &field;
  }
  return nullptr;
}

[[noreturn]] void refuse_key(const std::string& key, const std::string& where) {
  const std::string name = yaml_quoted(key.substr(0, 60));
  const auto meant = likely_key(key);
  user_error("expected a key of a recipe, got {} in {}; {}", name, where,
             meant ? fmt::format("did you mean '{}'?", *meant) : "try hearth ls --keys, which lists them");
}

std::string advice(const Field& field) {
  if (!field.advice.empty()) return "try " + field.advice;
  const std::string usual = field.write(Recipe());
  return usual == "\"\"" || usual == "[]" ? "try hearth ls --keys" : "try " + usual;
}

void read_value(Recipe& recipe, const std::string& key, const YAML::Node& value, const std::string& where,
                Places& places) {
  const Field* field = find_field(meant_key(key, value));
  const Field* inside = first_of_section(key);
  if (field == nullptr && inside != nullptr) {
    if (value.IsNull()) return;
    user_error("expected the keys of the section '{}', got {} in {}; try {}: {{{}: {}}}", key, shown(value),
               where, key, leaf_of(inside->key), inside->write(Recipe()));
  }
  if (field == nullptr) refuse_key(key, where);
  if (const std::string expected = field->read(recipe, value); !expected.empty()) {
    user_error("expected {} for {}, got {} in {}; {}", expected, field->key, shown(value), where,
               advice(*field));
  }
  places.set(field->key, where);
}

void read_map(Recipe& recipe, const YAML::Node& map, const std::string& prefix, const std::string& file,
              Places& places) {
  std::set<std::string> seen;
  for (const auto& entry : map) {
    const std::string where = fmt::format("{}:{}", file, entry.first.Mark().line + 1);
    if (!entry.first.IsScalar()) user_error("expected a key, got {} in {}", shown(entry.first), where);
    const std::string key = prefix + entry.first.Scalar();
    const Field* field = find_field(key);
    if (!seen.insert(key).second || (field != nullptr && places.contains(field->key))) {
      user_error("expected each key once, got '{}' twice, the second time in {}; try without one of them",
                 field != nullptr ? field->key : key, where);
    }
    if (!entry.second.IsMap()) {
      read_value(recipe, key, entry.second, where, places);
    } else if (prefix.empty() && first_of_section(key) != nullptr) {
      read_map(recipe, entry.second, key + ".", file, places);
    } else if (field != nullptr) {
      user_error("expected a value for '{}', got keys of its own in {}; {}", key, where, advice(*field));
    } else {
      const YAML::const_iterator first = entry.second.begin();
      const bool named = prefix.empty() && first != entry.second.end() && first->first.IsScalar();
      refuse_key(named ? key + "." + first->first.Scalar() : key, where);
    }
  }
}

void check_pixels(const Recipe& recipe, const Places& places) {
  const int64_t channels = recipe.model.channels;
  if (channels == 2 && recipe.data.kind != "tensors") {
    user_error("expected 1 (gray) or 3 (colour) for data.channels, got 2 in {}; try 3",
               places.of("data.channels"));
  }
  for (const auto& [key, values] :
       {std::pair("data.mean", &recipe.loader.mean), std::pair("data.std", &recipe.loader.std)}) {
    const int64_t count = std::ssize(*values);
    if (count != 1 && count != channels) {
      user_error("expected {}{} for {}, one per channel, got {} in {}; try [{}]",
                 channels == 1 ? "" : "1 or ",
                 channels == 1 ? "1 number" : fmt::format("{} numbers", channels), key, count, places.of(key),
                 fmt::join(std::vector<double>(static_cast<size_t>(channels), 0.5), ", "));
    }
  }
  for (const float std : recipe.loader.std) {
    if (!(std > 0)) {
      user_error("expected numbers above 0 for data.std, got {} in {}; try [0.5]", std,
                 places.of("data.std"));
    }
  }
}

void check_text(const Recipe& recipe, const Places& places) {
  if (recipe.data.kind == "text" && !is_text(recipe)) {
    user_error("expected model.path or model.config for text, got neither in {}; try model=FOLDER",
               places.of("data.kind"));
  }
  if (recipe.adapter.wanted() && recipe.adapter.targets.empty()) {
    user_error("expected layers to adapt, got none in {}; try adapter.targets=all-linear",
               places.of("adapter.targets"));
  }
  if (!recipe.text.model.empty() && !recipe.text.config.empty()) {
    user_error("expected model.path (to go on from) or model.config (to start new), got both in {}",
               places.of("model.config"));
  }
  for (const std::string& field : recipe.text.fields) {
    if (const size_t equals = field.find('=');
        equals != field.npos && equals > 0 && equals + 1 < field.size())
      continue;
    user_error("expected data.fields like [prompt=question, completion=answer], got '{}' in {}", field,
               places.of("data.fields"));
  }
}

/// What train.objective dpo says of other keys, where they are left at their defaults.
void take_up_objective(Recipe& recipe, const Places& places) {
  recipe.text.pairs = recipe.objective == "dpo";
  if (!recipe.text.pairs) return;
  if (!places.contains("data.packing")) recipe.text.packing = false;
  if (recipe.text.format == "detect") recipe.text.format = "preference";
}

void check_pairs(const Recipe& recipe, const Places& places) {
  if (!is_text(recipe)) {
    user_error(
        "expected model.path, a language model, for train.objective=dpo, got none in {}; try model=FOLDER",
        places.of("train.objective"));
  }
  const auto expect = [&](bool holds, const char* key, const char* value, std::string_view got) {
    if (holds) return;
    user_error("expected {0}={1} for train.objective=dpo, got {2} in {3}; try {0}={1}", key, value, got,
               places.of(key));
  };
  const TextOptions& text = recipe.text;
  expect(!text.packing, "data.packing", "false", "true");
  expect(text.format == "preference", "data.format", "preference", text.format);
  expect(!text.train_on_prompt, "data.train_on_prompt", "false", "true");
  expect(text.overlong != "split", "data.overlong", "truncate", "split");
}

/// An update that the recipe does not divide among its devices is divided by a smaller micro-batch.
void share_out(Recipe& recipe, const Places& places) {
  if (recipe.devices > 1 && recipe.device.find(':') != std::string::npos) {
    user_error("expected device=cpu, gpu or emulated for devices={}, got {} in {}; try device={}",
               recipe.devices, recipe.device, places.of("device"),
               recipe.device.substr(0, recipe.device.find(':')));
  }
  if (recipe.shards == 0) recipe.shards = recipe.devices;
  if (num_sharing(recipe, static_cast<int>(recipe.devices)) != recipe.devices) {
    user_error(
        "expected train.shards to be devices={} times 1, 2, 4 or so on, got {} in {}; try train.shards={}",
        recipe.devices, recipe.shards, places.of("train.shards"), recipe.devices);
  }
  if (recipe.accumulate == 1 && recipe.batch % recipe.shards == 0) {
    recipe.batch /= recipe.shards;
    recipe.accumulate = recipe.shards;
  }
  if (recipe.accumulate % recipe.shards == 0) return;
  const int64_t rounded = (recipe.accumulate / recipe.shards + 1) * recipe.shards;
  user_error(
      "expected train.accumulate to be a multiple of {} for devices={} and train.shards={}, got {} in {}; "
      "try train.accumulate={}",
      recipe.shards, recipe.devices, recipe.shards, recipe.accumulate, places.of("train.accumulate"),
      rounded);
}

/// What devices that send less do not go together with.
void check_exchange(const Recipe& recipe, const Places& places) {
  const bool is_local = recipe.local.steps > 1, compresses = recipe.compress != "none";
  const std::string wish = is_local     ? fmt::format("exchange.local_steps={}", recipe.local.steps)
                           : compresses ? "exchange.compress=" + recipe.compress
                                        : "";
  const auto expect = [&](bool holds, const char* key, std::string_view value, std::string_view got) {
    if (holds) return;
    user_error("expected {0}={1} for {2}, got {3} in {4}; try {0}={1}", key, value, wish, got,
               places.of(key));
  };
  if (wish.empty()) return;
  expect(recipe.parallel == "data", "parallel", "data", recipe.parallel);
  if (compresses) expect(recipe.precision != "fp16", "precision", "bf16", recipe.precision);
  if (!is_local) return;
  expect(!compresses, "exchange.compress", "none", recipe.compress);
  expect(recipe.optimizer.ema_decay == 0, "train.ema", "0", "a decay");
  expect(!recipe.offload.states, "offload.states", "false", "true");
  expect(!recipe.offload.weights, "offload.weights", "false", "true");
}

void check(const Recipe& recipe, const Places& places) {
  check_text(recipe, places);
  check_exchange(recipe, places);
  if (recipe.text.pairs) check_pairs(recipe, places);
  if (recipe.optimizer.nesterov && recipe.optimizer.momentum == 0) {
    user_error("expected optimizer.momentum above 0 for optimizer.nesterov, got 0 in {}; try 0.9",
               places.of("optimizer.nesterov"));
  }
  if (recipe.parallel == "zero1" && recipe.optimizer.ema_decay > 0) {
    user_error("expected train.ema=0 for parallel=zero1, got {} in {}; try parallel=data",
               recipe.optimizer.ema_decay, places.of("parallel"));
  }
  if (recipe.optimizer.in_backward &&
      (recipe.accumulate > 1 || recipe.optimizer.clip_norm > 0 || recipe.precision == "fp16")) {
    user_error(
        "expected train.accumulate=1, train.clip_norm=0 and fp32 or bf16 for optimizer.in_backward, got {}, "
        "{} "
        "and {} in {}",
        recipe.accumulate, recipe.optimizer.clip_norm, recipe.precision, places.of("optimizer.in_backward"));
  }
  if (recipe.data.kind != "shapes" && recipe.data.path.empty()) {
    const bool text = recipe.data.kind == "text";
    user_error("expected data.path, the {} that holds the data of kind {}, got none in {}; try {}",
               text ? "file" : "folder", recipe.data.kind, places.of("data.kind"),
               text ? "data=FILE.jsonl or data=FILE.txt" : "data.path=DIR");
  }
  for (const int64_t width : recipe.model.hidden) {
    if (width < 1 || width > 1 << 20) {
      user_error("expected widths from 1 to {} in model.hidden, got {} in {}; try [512, 256]", 1 << 20, width,
                 places.of("model.hidden"));
    }
  }
  if (recipe.schedule.name == "onecycle" && recipe.schedule.warmup_steps > 0) {
    user_error(
        "expected no schedule.warmup_steps, because onecycle brings its own warm-up, got {} in {}; try 0",
        recipe.schedule.warmup_steps, places.of("schedule.warmup_steps"));
  }
  check_pixels(recipe, places);
}

}  // namespace

double learning_rate(const ScheduleOptions& schedule, double base, int64_t step, int64_t total) {
  const auto cosine = [](double from, double to, double share) {
    return to + (from - to) / 2 * (1 + std::cos(3.14159265358979323846 * share));
  };
  if (schedule.name == "onecycle") {
    const double last_up = 0.3 * static_cast<double>(total) - 1;
    const auto at = static_cast<double>(std::min(step, total - 1));
    if (at <= last_up) return cosine(base / 25, base, at / last_up);
    return cosine(base, base / 25 / 1e4, (at - last_up) / (static_cast<double>(total) - 1 - last_up));
  }
  if (step < schedule.warmup_steps) {
    return base * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  }
  const int64_t after = step - schedule.warmup_steps;
  if (schedule.name == "step")
    return base * std::pow(schedule.gamma, static_cast<double>(after / schedule.step_size));
  if (schedule.name == "constant") return base;
  const auto length = static_cast<double>(std::max<int64_t>(1, total - schedule.warmup_steps));
  return cosine(base, schedule.min_lr, std::min(1.0, static_cast<double>(after) / length));
}

namespace {

/// The value of an override: lists are YAML, the rest is taken as it stands ('#' and ':' may be in a path).
YAML::Node override_value(const std::string& key, const std::string& value, const std::string& where) {
  const Field* field = find_field(key);
  if (line_of_bytes_that_are_no_text(value) != 0)
    user_error("expected text in UTF-8, got bytes that are none in {}", where);
  if (field == nullptr || !field->is_list) return YAML::Node(value);
  return value.empty() ? YAML::Node() : parse_yaml(value, where);
}

}  // namespace

Recipe parse_recipe(const std::string& yaml, const std::string& where,
                    std::span<const std::string> overrides) {
  Recipe recipe;
  Places places(where);
  const YAML::Node root = parse_yaml(yaml, where);
  if (!root.IsMap() && !root.IsNull()) {
    user_error(
        "expected keys like 'train:' at the top, got {} in {}:1; try hearth cp demo FILE.yaml for a recipe",
        shown(root), where);
  }
  if (root.IsMap()) read_map(recipe, root, "", where, places);
  for (const std::string& text : overrides) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) user_error("expected an override like train.batch=64, got '{}'", text);
    const std::string key = text.substr(0, equals);
    const std::string given = "the override " + yaml_quoted(text);
    read_value(recipe, key, override_value(key, text.substr(equals + 1), given), given, places);
  }
  recipe.optimizer.name = *std::ranges::find(optimizer_names(), recipe.optimizer_name);
  if (is_text(recipe)) recipe.data.kind = "text";
  take_up_objective(recipe, places);
  recipe.data.image_size = recipe.model.image_size;
  recipe.data.channels = recipe.model.channels;
  recipe.data.seed = recipe.loader.seed = recipe.seed;
  share_out(recipe, places);
  recipe.loader.batch = recipe.batch;
  check(recipe, places);
  return recipe;
}

Recipe load_recipe(const fs::path& path, std::span<const std::string> overrides) {
  return parse_recipe(read_file(path, kMaxYamlBytes), path.string(), overrides);
}

std::string write_recipe(const Recipe& recipe) {
  std::string text;
  std::string section;
  for (const Field& field : recipe_fields()) {
    const size_t dot = field.key.find('.');
    const std::string parent = dot == std::string::npos ? "" : field.key.substr(0, dot);
    if (parent != section) text += parent + ":\n";
    section = parent;
    const std::string name = dot == std::string::npos ? field.key : "  " + field.key.substr(dot + 1);
    text += fmt::format("{}: {}\n", name, field.write(recipe));
  }
  return text;
}

std::string describe_keys() {
  std::string text;
  const Recipe defaults;
  for (const Field& field : recipe_fields()) {
    text += fmt::format("  {:<26} {:<14} {}\n", field.key, field.write(defaults), field.doc);
  }
  return text;
}

bool is_text(const Recipe& recipe) { return !recipe.text.model.empty() || !recipe.text.config.empty(); }

bool TextOptions::is_stream(const fs::path& data) const {
  return data.extension() == ".safetensors" || (data.extension() == ".txt" && document == "file");
}

bool has_documents(const Recipe& recipe) {
  const TextOptions& text = recipe.text;
  const bool streams =
      text.is_stream(recipe.data.path) && (text.val_path.empty() || text.is_stream(text.val_path));
  return text.packing && !streams;
}

fs::path TextOptions::config_file() const {
  return config.empty() ? fs::path(model) / "config.json" : fs::path(config);
}

std::string model_name(const Recipe& recipe) {
  if (!is_text(recipe)) return recipe.model.name;
  return fs::absolute(recipe.text.config_file()).parent_path().filename().string();
}

}  // namespace hearth::train
