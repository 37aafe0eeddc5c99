#include "train/recipe.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/text.h"

namespace hearth::train {
namespace {

constexpr int64_t kMaxYamlBytes = 1 << 20;

/// How one key is read into a recipe and written out again.
struct Field {
  std::string key;
  std::string doc;
  /// Takes the text of the value; returns what was expected when it does not fit.
  std::function<std::string(Recipe&, const YAML::Node&)> read;
  std::function<std::string(const Recipe&)> write;
};

template <typename T>
using Member = std::function<T&(Recipe&)>;

template <typename T>
const T& constant(const Member<T>& member, const Recipe& recipe) {
  return member(const_cast<Recipe&>(recipe));
}

Field integer(std::string key, std::string doc, Member<int64_t> member, int64_t least,
              int64_t most = int64_t{1} << 40) {
  const auto read = [=](Recipe& recipe, const YAML::Node& node) -> std::string {
    int64_t value = 0;
    if (!YAML::convert<int64_t>::decode(node, value) || value < least || value > most) {
      return fmt::format("a whole number from {} to {}", least, most);
    }
    member(recipe) = value;
    return "";
  };
  return {key, doc, read, [=](const Recipe& recipe) { return std::to_string(constant(member, recipe)); }};
}

Field real(std::string key, std::string doc, Member<double> member, double least, double below) {
  const auto read = [=](Recipe& recipe, const YAML::Node& node) -> std::string {
    double value = 0;
    if (!YAML::convert<double>::decode(node, value) || !(value >= least && value < below)) {
      return fmt::format("a number from {} to below {}", least, below);
    }
    member(recipe) = value;
    return "";
  };
  return {key, doc, read, [=](const Recipe& recipe) { return fmt::format("{}", constant(member, recipe)); }};
}

Field boolean(std::string key, std::string doc, Member<bool> member) {
  const auto read = [=](Recipe& recipe, const YAML::Node& node) -> std::string {
    bool value = false;
    if (!YAML::convert<bool>::decode(node, value)) return "true or false";
    member(recipe) = value;
    return "";
  };
  return {key, doc, read, [=](const Recipe& recipe) { return constant(member, recipe) ? "true" : "false"; }};
}

/// Text; `choices` limits it when not empty.
Field text(std::string key, std::string doc, Member<std::string> member,
           std::vector<std::string> choices = {}) {
  const auto read = [=](Recipe& recipe, const YAML::Node& node) -> std::string {
    if (!node.IsScalar() && !node.IsNull()) return "one word or path";
    const std::string value = node.IsNull() ? "" : node.Scalar();
    if (!choices.empty() && std::find(choices.begin(), choices.end(), value) == choices.end()) {
      return fmt::format("one of {}{}", fmt::join(choices, ", "), did_you_mean(value, choices));
    }
    member(recipe) = value;
    return "";
  };
  const auto write = [=](const Recipe& recipe) {
    YAML::Emitter out;
    out << YAML::DoubleQuoted << constant(member, recipe);
    return std::string(out.c_str());
  };
  return {key, doc, read, write};
}

/// A list of numbers or words, written [a, b].
template <typename T>
Field list(std::string key, std::string doc, Member<std::vector<T>> member) {
  const auto read = [=](Recipe& recipe, const YAML::Node& node) -> std::string {
    std::vector<T> values;
    if (!node.IsSequence()) return "a list like [a, b]";
    for (const YAML::Node& item : node) {
      T value{};
      if (!item.IsScalar() || !YAML::convert<T>::decode(item, value)) return "a list like [a, b]";
      values.push_back(value);
    }
    member(recipe) = values;
    return "";
  };
  return {key, doc, read, [=](const Recipe& recipe) {
            return fmt::format("[{}]", fmt::join(constant(member, recipe), ", "));
          }};
}

Field memory_field() {
  const auto read = [](Recipe& recipe, const YAML::Node& node) -> std::string {
    const auto bytes = parse_bytes(node.Scalar());
    if (!bytes) return "a size like 20GiB, or 0 for no budget";
    recipe.memory = *bytes;
    return "";
  };
  return {"memory", "budget of the arena, met by recomputation; 0: none", read,
          [](const Recipe& recipe) { return std::to_string(recipe.memory); }};
}

Field seed_field() {
  const auto read = [](Recipe& recipe, const YAML::Node& node) -> std::string {
    if (!YAML::convert<uint64_t>::decode(node, recipe.seed)) return "a whole number from 0";
    return "";
  };
  return {"seed", "every random choice follows from it", read,
          [](const Recipe& recipe) { return std::to_string(recipe.seed); }};
}

void add_run_fields(std::vector<Field>& f) {
  f.push_back(seed_field());
  f.push_back(integer(
      "threads", "0: every processor", [](Recipe & r) -> auto& { return r.threads; }, 0, 1024));
  f.push_back(text("device", "where to train", [](Recipe & r) -> auto& { return r.device; }, {"cpu"}));
  f.push_back(integer(
      "devices", "how many of them", [](Recipe & r) -> auto& { return r.devices; }, 1, 1));
  f.push_back(text("precision", "fp32, bf16, or fp16 with a dynamic loss scale",
                   [](Recipe & r) -> auto& { return r.precision; }, {"fp32", "bf16", "fp16"}));
  f.push_back(memory_field());
  f.push_back(text(
      "init", "safetensors file with the first weights", [](Recipe & r) -> auto& { return r.init; }));
  f.push_back(list<std::string>(
      "passes.off", "passes to leave out (hearth dump --list); winograd too",
      [](Recipe & r) -> auto& { return r.passes_off; }));
}

void add_model_fields(std::vector<Field>& f) {
  f.push_back(text(
      "model.name", "mlp, simplecnn, smallcnn, resnet18, resnet34, resnet50",
      [](Recipe & r) -> auto& { return r.model.name; }));
  f.push_back(integer(
      "model.num_classes", "classes to tell apart", [](Recipe & r) -> auto& { return r.model.num_classes; },
      2, 100000));
  f.push_back(list<int64_t>(
      "model.hidden", "mlp: widths of the hidden layers",
      [](Recipe & r) -> auto& { return r.model.hidden; }));
  f.push_back(real(
      "model.dropout", "mlp: share of activations dropped",
      [](Recipe & r) -> auto& { return r.model.dropout; }, 0, 1));
}

void add_data_fields(std::vector<Field>& f) {
  f.push_back(text(
      "data.kind", "shapes (generated), idx (MNIST), cifar10, folder (a folder per class), tensors",
      [](Recipe & r) -> auto& { return r.data.kind; }, {"shapes", "idx", "cifar10", "folder", "tensors"}));
  const auto path = [](Recipe& recipe, const YAML::Node& node) -> std::string {
    if (!node.IsScalar() && !node.IsNull()) return "a folder";
    recipe.data.path = node.IsNull() ? "" : node.Scalar();
    return "";
  };
  f.push_back({"data.path", "folder of the dataset", path,
               [](const Recipe& r) { return fmt::format("\"{}\"", r.data.path.string()); }});
  f.push_back(integer(
      "data.image_size", "side of the pictures in pixels",
      [](Recipe & r) -> auto& { return r.model.image_size; }, 4, 4096));
  f.push_back(integer(
      "data.channels", "1 gray, 3 colour", [](Recipe & r) -> auto& { return r.model.channels; }, 1, 3));
  f.push_back(integer(
      "data.count", "shapes: training pictures", [](Recipe & r) -> auto& { return r.data.count; }, 1));
  f.push_back(integer(
      "data.val_count", "shapes: validation pictures", [](Recipe & r) -> auto& { return r.val_count; }, 1));
  f.push_back(boolean(
      "data.shuffle", "a new order each epoch", [](Recipe & r) -> auto& { return r.loader.shuffle; }));
  const Member<int64_t> crop = [](Recipe & r) -> auto& { return r.loader.augment.crop_padding; };
  f.push_back(integer("data.crop_padding", "random crop after padding by so many pixels", crop, 0, 1024));
  f.push_back(boolean(
      "data.flip", "mirror half of the pictures", [](Recipe & r) -> auto& { return r.loader.augment.flip; }));
  const auto jitter = [](Recipe& recipe, const YAML::Node& node) -> std::string {
    float value = 0;
    if (!YAML::convert<float>::decode(node, value) || !(value >= 0 && value < 1))
      return "a number from 0 to below 1";
    recipe.loader.augment.jitter = value;
    return "";
  };
  f.push_back({"data.jitter", "random brightness, contrast, saturation, by up to this share", jitter,
               [](const Recipe& r) { return fmt::format("{}", r.loader.augment.jitter); }});
  f.push_back(list<float>(
      "data.mean", "per channel, of pixels from 0 to 1", [](Recipe & r) -> auto& { return r.loader.mean; }));
  f.push_back(list<float>(
      "data.std", "per channel", [](Recipe & r) -> auto& { return r.loader.std; }));
}

void add_train_fields(std::vector<Field>& f) {
  f.push_back(integer(
      "train.steps", "updates in all; 0: epochs decide", [](Recipe & r) -> auto& { return r.steps; }, 0));
  f.push_back(integer(
      "train.epochs", "times through the data", [](Recipe & r) -> auto& { return r.epochs; }, 1));
  f.push_back(integer(
      "train.batch", "micro-batch of one worker", [](Recipe & r) -> auto& { return r.batch; }, 1, 1 << 20));
  f.push_back(integer(
      "train.accumulate", "micro-batches per update", [](Recipe & r) -> auto& { return r.accumulate; }, 1,
      1 << 20));
  f.push_back(integer(
      "train.checkpoint_every", "updates between checkpoints",
      [](Recipe & r) -> auto& { return r.checkpoint_every; }, 1));
  f.push_back(integer(
      "train.keep_checkpoints", "how many to keep", [](Recipe & r) -> auto& { return r.keep_checkpoints; }, 1,
      1000));
  f.push_back(integer(
      "train.eval_every", "updates between evaluations; 0: each epoch",
      [](Recipe & r) -> auto& { return r.eval_every; }, 0));
  f.push_back(integer(
      "train.log_every", "updates between log lines", [](Recipe & r) -> auto& { return r.log_every; }, 1));
  f.push_back(real(
      "train.label_smoothing", "share of the target spread over all classes",
      [](Recipe & r) -> auto& { return r.label_smoothing; }, 0, 1));
  f.push_back(real(
      "train.clip_norm", "largest global gradient norm; 0: off",
      [](Recipe & r) -> auto& { return r.optimizer.clip_norm; }, 0, 1e30));
  f.push_back(real(
      "train.ema", "decay of the weights' moving average; 0: off",
      [](Recipe & r) -> auto& { return r.optimizer.ema_decay; }, 0, 1));
  f.push_back(integer(
      "train.early_stop", "evaluations without gain before stopping; 0: off",
      [](Recipe & r) -> auto& { return r.early_stop; }, 0));
}

void add_optimizer_fields(std::vector<Field>& f) {
  f.push_back(text("optimizer.name", "sgd or adamw", [](Recipe & r) -> auto& { return r.optimizer_name; },
                   {"sgd", "adamw"}));
  f.push_back(real(
      "optimizer.lr", "learning rate", [](Recipe & r) -> auto& { return r.lr; }, 0, 1e6));
  f.push_back(real(
      "optimizer.momentum", "sgd", [](Recipe & r) -> auto& { return r.optimizer.momentum; }, 0, 1));
  f.push_back(boolean(
      "optimizer.nesterov", "sgd", [](Recipe & r) -> auto& { return r.optimizer.nesterov; }));
  f.push_back(real(
      "optimizer.weight_decay", "L2 for sgd, decoupled for adamw",
      [](Recipe & r) -> auto& { return r.optimizer.weight_decay; }, 0, 1e6));
  f.push_back(real(
      "optimizer.beta1", "adamw", [](Recipe & r) -> auto& { return r.optimizer.beta1; }, 0, 1));
  f.push_back(real(
      "optimizer.beta2", "adamw", [](Recipe & r) -> auto& { return r.optimizer.beta2; }, 0, 1));
  f.push_back(real(
      "optimizer.eps", "adamw", [](Recipe & r) -> auto& { return r.optimizer.eps; }, 0, 1));
  f.push_back(text("schedule.name", "constant, step, cosine, onecycle",
                   [](Recipe & r) -> auto& { return r.schedule.name; },
                   {"constant", "step", "cosine", "onecycle"}));
  f.push_back(integer(
      "schedule.warmup_steps", "linear warm-up", [](Recipe & r) -> auto& { return r.schedule.warmup_steps; },
      0));
  f.push_back(integer(
      "schedule.step_size", "step: updates between drops",
      [](Recipe & r) -> auto& { return r.schedule.step_size; }, 1));
  f.push_back(real(
      "schedule.gamma", "step: factor of a drop", [](Recipe & r) -> auto& { return r.schedule.gamma; }, 0,
      1e6));
  f.push_back(real(
      "schedule.min_lr", "cosine: the last rate", [](Recipe & r) -> auto& { return r.schedule.min_lr; }, 0,
      1e6));
}

const std::vector<Field>& fields() {
  static const std::vector<Field> all = [] {
    std::vector<Field> f;
    add_run_fields(f);
    add_model_fields(f);
    add_data_fields(f);
    add_train_fields(f);
    add_optimizer_fields(f);
    return f;
  }();
  return all;
}

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
    {"weight_decay", "optimizer.weight_decay"}};

const Field* find_field(std::string key, const std::string& where) {
  std::replace(key.begin(), key.end(), '-', '_');
  for (const auto& [alias, name] : kAliases) {
    if (key == alias) key = name;
  }
  std::vector<std::string> names;
  for (const Field& field : fields()) {
    if (field.key == key) return &field;
    names.push_back(field.key);
  }
  user_error("{}: unknown key '{}'{}", where, key, did_you_mean(key, names));
}

void read_value(Recipe& recipe, const std::string& key, const YAML::Node& value, const std::string& where) {
  const Field* field = find_field(key, where);
  const bool readable = value.IsScalar() || value.IsNull() || value.IsSequence();
  const std::string expected = readable ? field->read(recipe, value) : "a value";
  if (expected.empty()) return;
  const std::string got = value.IsScalar() ? fmt::format("'{}'", value.Scalar()) : "something else";
  user_error("{}: expected {} for {}, got {}", where, expected, field->key, got);
}

void read_map(Recipe& recipe, const YAML::Node& map, const std::string& prefix, const std::string& file) {
  std::set<std::string> seen;
  for (const auto& entry : map) {
    const std::string where = fmt::format("{}:{}", file, entry.first.Mark().line + 1);
    if (!entry.first.IsScalar()) user_error("{}: expected a key", where);
    const std::string key = prefix + entry.first.Scalar();
    if (!seen.insert(key).second) user_error("{}: '{}' is given twice", where, key);
    if (entry.second.IsMap()) {
      if (!prefix.empty()) user_error("{}: '{}' holds no keys of its own", where, key);
      read_map(recipe, entry.second, key + ".", file);
    } else {
      read_value(recipe, key, entry.second, where);
    }
  }
}

YAML::Node parse_yaml(const std::string& text, const std::string& where) {
  if (std::ssize(text) > kMaxYamlBytes) user_error("{}: expected a recipe of at most 1 MiB", where);
  if (text.find('\0') != std::string::npos) user_error("{}: expected text, found bytes that are none", where);
  // yaml-cpp recurses per level; a recipe needs two.
  int depth = 0;
  for (const char c : text) {
    depth += (c == '[' || c == '{') - (c == ']' || c == '}');
    if (depth > 16) user_error("{}: expected at most 16 nested brackets", where);
  }
  for (size_t at = 0; at < text.size(); at = std::min(text.find('\n', at), text.size() - 1) + 1) {
    const size_t indent = text.find_first_not_of(" -?:", at);
    if (indent != std::string::npos && indent - at > 64)
      user_error("{}: expected at most 64 columns of indentation", where);
  }
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    user_error("{}:{}: {}", where, error.mark.line + 1, error.msg);
  }
}

void check(const Recipe& recipe, const std::string& where) {
  models::find_model(recipe.model.name);
  if (recipe.optimizer.nesterov && recipe.optimizer.momentum == 0) {
    user_error("{}: optimizer.nesterov needs optimizer.momentum above 0", where);
  }
  if (recipe.data.kind != "shapes" && recipe.data.path.empty()) {
    user_error("{}: data.kind {} needs data.path, the folder that holds it", where, recipe.data.kind);
  }
  for (const int64_t width : recipe.model.hidden) {
    if (width < 1 || width > 1 << 20)
      user_error("{}: expected widths of at least 1 in model.hidden, got {}", where, width);
  }
  if (recipe.schedule.name == "onecycle" && recipe.schedule.warmup_steps > 0) {
    user_error("{}: schedule onecycle brings its own warm-up; leave schedule.warmup_steps at 0", where);
  }
  for (const float mean : recipe.loader.mean) {
    if (!std::isfinite(mean)) user_error("{}: expected finite numbers in data.mean", where);
  }
  if (recipe.loader.mean.empty() || recipe.loader.std.empty())
    user_error("{}: data.mean and data.std need a number", where);
  for (const float std : recipe.loader.std) {
    if (!(std > 0) || !std::isfinite(std)) user_error("{}: expected data.std above 0, got {}", where, std);
  }
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

Recipe parse_recipe(const std::string& yaml, const std::string& where,
                    std::span<const std::string> overrides) {
  Recipe recipe;
  const YAML::Node root = parse_yaml(yaml, where);
  if (!root.IsMap() && !root.IsNull()) user_error("{}: expected keys like 'train:' at the top", where);
  if (root.IsMap()) read_map(recipe, root, "", where);
  for (const std::string& text : overrides) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos) user_error("expected an override like train.batch=64, got '{}'", text);
    const std::string value = text.substr(equals + 1);
    read_value(recipe, text.substr(0, equals), value.empty() ? YAML::Node() : parse_yaml(value, text), text);
  }
  recipe.optimizer.kind =
      recipe.optimizer_name == "sgd" ? OptimizerOptions::Kind::sgd : OptimizerOptions::Kind::adamw;
  recipe.data.image_size = recipe.model.image_size;
  recipe.data.channels = recipe.model.channels;
  recipe.data.seed = recipe.loader.seed = recipe.seed;
  recipe.loader.batch = recipe.batch;
  check(recipe, where);
  return recipe;
}

Recipe load_recipe(const fs::path& path, std::span<const std::string> overrides) {
  return parse_recipe(read_file(path, kMaxYamlBytes), path.string(), overrides);
}

std::string write_recipe(const Recipe& recipe) {
  std::string text;
  std::string section;
  for (const Field& field : fields()) {
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
  for (const Field& field : fields()) {
    text += fmt::format("  {:<26} {:<14} {}\n", field.key, field.write(defaults), field.doc);
  }
  return text;
}

EngineOptions engine_options(const Recipe& recipe) {
  const DType precision = recipe.precision == "bf16"   ? DType::bf16
                          : recipe.precision == "fp16" ? DType::f16
                                                       : DType::f32;
  EngineOptions options{
      .model = recipe.model,
      .optimizer = recipe.optimizer,
      .batch = recipe.batch,
      .accumulate = recipe.accumulate,
      .precision = precision,
      .label_smoothing = recipe.label_smoothing,
      .seed = recipe.seed,
      .num_threads = recipe.threads == 0 ? num_available_cpus() : static_cast<int>(recipe.threads),
      .budget_bytes = recipe.memory};
  options.passes_off = recipe.passes_off;
  std::erase(options.passes_off, "winograd");
  return options;
}

}  // namespace hearth::train
