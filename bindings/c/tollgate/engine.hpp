/* Engines: limits that machines share. Part of tollgate_redis.hpp. */
#ifndef TOLLGATE_ENGINE_HPP
#define TOLLGATE_ENGINE_HPP

#include "tollgate_redis.h"

#include "call.hpp"
#include "limiter.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tollgate {

/// How machines share lanes, to be named in the options of a limiter. The secret has to live until the limiter is
/// built, and so have the lanes, if there are any.
inline tollgate_cluster_options cluster(std::string_view secret,
                                        const std::vector<tollgate_cluster_lane> &lanes = {}) noexcept
{
    auto options = detail::zero<tollgate_cluster_options>();
    options.secret = secret.data();
    options.secret_len = secret.size();
    options.lanes = lanes.data();
    options.lanes_count = lanes.size();
    return options;
}

/// A lane that is shared as the others, to be changed: exact = 1, say. The name has to live until the limiter is built.
inline tollgate_cluster_lane cluster_lane(std::string_view name) noexcept
{
    auto lane = detail::zero<tollgate_cluster_lane>();
    lane.name = name.data();
    lane.name_len = name.size();
    return lane;
}

/// A lane that each machine has for itself.
inline tollgate_cluster_lane own_lane(std::string_view name) noexcept
{
    auto lane = cluster_lane(name);
    lane.own = 1;
    return lane;
}

/// Where the store is, to be changed. The texts have to live until the engine is made.
inline tollgate_engine_options engine_options(std::string_view urls) noexcept
{
    auto options = detail::zero<tollgate_engine_options>();
    options.urls = urls.data();
    options.urls_len = urls.size();
    return options;
}

/// The thread through which a limiter settles with the store. When it ends, it gives back what credit was not spent.
class engine {
public:
    engine(tollgate::limiter &limiter, const tollgate_engine_options &options)
        : handle_(detail::explained<tollgate_engine *>(tollgate_engine_new, limiter.get(), &options))
    {
    }

    engine(tollgate::limiter &limiter, std::string_view urls) : engine(limiter, engine_options(urls)) {}

    /// How it gets on.
    tollgate_engine_view status() const
    {
        return view(nullptr, 0);
    }

    /// The lanes that are shared.
    std::vector<tollgate_engine_lane> lanes() const
    {
        std::vector<tollgate_engine_lane> lanes(TOLLGATE_LANES_MAX);
        lanes.resize(view(lanes.data(), lanes.size()).lane_count);
        return lanes;
    }

    bool connected() const { return status().state == TOLLGATE_ENGINE_STATE_CONNECTED; }

    tollgate_engine *get() const noexcept { return handle_.get(); }

private:
    tollgate_engine_view view(tollgate_engine_lane *lanes, std::size_t count) const
    {
        auto view = detail::zero<tollgate_engine_view>();
        detail::require(tollgate_engine_status(get(), &view, lanes, count));
        return view;
    }

    struct freed {
        void operator()(tollgate_engine *handle) const noexcept { tollgate_engine_free(handle); }
    };

    std::unique_ptr<tollgate_engine, freed> handle_;
};

} // namespace tollgate

#endif
