// Implementation of schedules: the learning rate of each epoch. This file parses the text of a schedule, and finds the
// rate of an epoch.
#include "schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <stdexcept>

namespace mnist {
namespace {

/// Parses `text` as a number. Returns false if `text` is no number, or has more characters after it.
template <class Number>
bool number_from(std::string_view text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end;
}

}  // namespace

Schedule::Schedule(float constant) : steps_{{0, constant}}, text_(fmt::format("{}", constant)) {}

Schedule Schedule::parse(std::string_view text) {
  constexpr std::string_view kLecture = "0:1e-3,3:1e-4,7:1e-5";
  Schedule schedule;
  schedule.text_ = text == "lecture" ? kLecture : text;

  std::string_view rest = schedule.text_;
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    const std::string_view step = rest.substr(0, comma);
    more = comma != std::string_view::npos;
    if (more) rest.remove_prefix(comma + 1);
    const std::size_t colon = step.find(':');
    std::size_t epoch = 0;
    float rate = 0;
    const bool reads = colon != std::string_view::npos && number_from(step.substr(0, colon), epoch) &&
                       number_from(step.substr(colon + 1), rate) && std::isfinite(rate) && rate >= 0;
    const bool in_order = schedule.steps_.empty() ? epoch == 0 : epoch > schedule.steps_.back().first;
    if (!reads || !in_order)
      throw std::invalid_argument(
          fmt::format("schedule step \"{}\": expected EPOCH:RATE,... with epochs from 0 upwards, or \"lecture\" ({})",
                      step, kLecture));
    schedule.steps_.emplace_back(epoch, rate);
  }
  return schedule;
}

float Schedule::rate(std::size_t epoch) const {
  return std::find_if(steps_.rbegin(), steps_.rend(), [epoch](const auto& step) { return step.first <= epoch; })
      ->second;
}

}  // namespace mnist
